"""The largest number of a nest, by a recursive model that tasks of Spark train: TorchDistributor.

    python examples/clusters/spark_torch.py --processes 2

Spark starts the processes, here on the driver's machine, and connects them as torchrun does. They run the
program `torchrun_ddp.py`, as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

PROGRAM = Path(__file__).resolve().with_name("torchrun_ddp.py")


def main(argv: list[str] | None = None) -> None:
    """Train in several processes; what rank 0 prints is printed here."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--on-executors", action="store_true", help="in tasks of the cluster's executors")
    args = parser.parse_args(argv)
    spark = SparkSession.builder.appName("nests").getOrCreate()
    local = not args.on_executors
    TorchDistributor(num_processes=args.processes, local_mode=local, use_gpu=False).run(str(PROGRAM))
    spark.stop()


if __name__ == "__main__":
    main()
