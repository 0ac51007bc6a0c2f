"""Our dynamics against MuJoCo's and Pinocchio's: `fraxenv cross-check --help`."""
