"""``python -m benchmarks``, from the root of a checkout."""

from __future__ import annotations

import sys

try:
    from benchmarks.command import main
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "rich":
        raise
    sys.exit("error: benchmarks: expected rich to be installed, found none; pip install -e '.[bench]'")

if __name__ == "__main__":
    sys.exit(main())
