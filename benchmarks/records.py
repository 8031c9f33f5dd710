"""Accuracy on nested records: the defaults of `StructureClassifier("json")` beside three baselines.

    python -m benchmarks.records --data FOLDER

The folder holds recipes.jsonl and mutagenesis.json, which JsonGrinder.jl ships; without it, these are left
out. All else is made here. Figures are those of the test parts, means over five seeds with standard errors.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.records_baselines import figures
from benchmarks.records_data import SETS, Split
from foldbatch.estimators import StructureClassifier
from foldbatch.system.showing import table

FILES = ("recipes", "mutagenesis")  # sets that are read from the folder
SPLIT_BY_SEED = ("mutagenesis",)
SEEDS = 5
HEADS = ("set", "foldbatch", "linear", "boosting", "forest", "seconds")


def accuracy(split: Split, seed: int) -> tuple[float, float]:
    """Return the accuracy of a model with all defaults on the test part, and the seconds of its training."""
    model = StructureClassifier("json", random_state=seed)
    start = time.perf_counter()
    model.fit(split.train, split.train_classes)
    return float(model.score(split.test, split.test_classes)), time.perf_counter() - start


def mean_and_error(values: Sequence[float]) -> str:
    """Return a mean and its standard error in per cent.

    >>> mean_and_error([0.5, 0.7]), mean_and_error([0.5])
    ('60.0 ± 10.0', '50.0')
    """
    mean = f"{100 * np.mean(values):.1f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {100 * np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"


def row(name: str, folder: Path, *, models: bool, baselines: bool) -> list[str]:
    """Return the figures of a set as a line of the table; the accuracies of all seeds go to standard error.

    Where all seeds have one split, baselines run once: only their own random choices would differ.
    """
    ours: list[tuple[float, float]] = []
    flat: list[dict[str, float]] = []
    for seed in range(SEEDS):
        split = SETS[name](folder, seed)
        if models:
            ours.append(accuracy(split, seed))
            print(name, seed, *ours[-1], file=sys.stderr, flush=True)
        if baselines and (not seed or name in SPLIT_BY_SEED):
            flat.append(figures(split, seed))
            print(name, seed, flat[-1], file=sys.stderr, flush=True)
    of_baselines = [
        mean_and_error([part[baseline] for part in flat]) if flat else "" for baseline in HEADS[2:5]
    ]
    of_ours = mean_and_error([share for share, _ in ours]) if ours else ""
    return [name, of_ours, *of_baselines, f"{np.mean([seconds for _, seconds in ours]):.0f}" if ours else ""]


def main() -> None:
    """Print the table of all sets, or of those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of recipes.jsonl and mutagenesis.json")
    parser.add_argument("--sets", nargs="+", choices=[*SETS], default=[*SETS])
    parser.add_argument("--no-models", action="store_false", dest="models")
    parser.add_argument("--no-baselines", action="store_false", dest="baselines")
    options = parser.parse_args()
    names = [name for name in options.sets if options.data or name not in FILES]
    rows = [
        row(name, options.data or Path(), models=options.models, baselines=options.baselines)
        for name in names
    ]
    print(table(HEADS, rows))


if __name__ == "__main__":
    main()
