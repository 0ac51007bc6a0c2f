"""The command line: `python -m fraxenv --help`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
