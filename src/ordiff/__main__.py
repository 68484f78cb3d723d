"""``python -m ordiff``."""

import sys

from ordiff.cli import main

if __name__ == "__main__":
    sys.exit(main())
