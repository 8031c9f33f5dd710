"""``python -m benchmarks.gpu``: the benchmark for a GPU."""

import sys

from benchmarks.gpu.command import main

sys.exit(main())
