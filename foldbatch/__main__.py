"""The command ``python -m foldbatch``, which is ``foldbatch``."""

import sys

from foldbatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
