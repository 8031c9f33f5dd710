"""``python -m foldbatch.bench``: the command ``foldbatch bench``."""

from __future__ import annotations

import sys

from foldbatch.bench.command import main

if __name__ == "__main__":
    sys.exit(main(prog="python -m foldbatch.bench"))
