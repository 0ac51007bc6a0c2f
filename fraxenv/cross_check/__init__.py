"""Our dynamics against MuJoCo's and Pinocchio's: `python scripts/cross_check.py --help`."""
