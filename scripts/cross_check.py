"""Compare a robot's dynamics with MuJoCo's and Pinocchio's.

    python scripts/cross_check.py panda
    python scripts/cross_check.py my.urdf --floating-base
    python scripts/cross_check.py --help

The exit status is 0 if all is within tolerance, 1 if something is not, 2 if there is nothing to
compare: an unknown robot, a file that cannot be read, MuJoCo missing.
"""

import sys

from fraxenv.cross_check.command import main

if __name__ == "__main__":
    sys.exit(main())
