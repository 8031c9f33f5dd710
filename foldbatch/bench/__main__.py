"""``python -m foldbatch.bench``: measure what batching gains on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from foldbatch.bench import sst
from foldbatch.bench.workload import load_trees, random_trees
from foldbatch.errors import FoldbatchError

DEFAULT_DATA = Path("../shared/data/sst")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        directory = options.data or (DEFAULT_DATA if DEFAULT_DATA.is_dir() else None)
        trees = load_trees(directory, options.batch) if directory else random_trees(options.batch)
        source = f"trees of {directory}" if directory else "random trees (give --data for a treebank)"
        console.print(f"SST Tree-LSTM, hidden {options.hidden}, {len(trees)} {source}")
        outcome = sst.run(trees, options.hidden, options.repeats, peers=not options.no_peers)
        if options.json:
            options.json.write_text(json.dumps(outcome.as_dict(), indent=1), encoding="utf-8")
    except (FoldbatchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _show(console, outcome)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m foldbatch.bench", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a directory with train.txt in bracket form")
    parser.add_argument("--hidden", type=_positive, default=150, help="size of h and c (default 150)")
    parser.add_argument("--batch", type=_positive, default=256, help="trees per batch (default 256)")
    parser.add_argument("--repeats", type=_positive, default=11, help="runs of each task (default 11)")
    parser.add_argument(
        "--no-peers", action="store_true", help="do not measure PyTorch even if it is installed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {value}")
    return value


def _show(console: Console, outcome: sst.Outcome) -> None:
    console.print(", ".join(f"{name} {value}" for name, value in outcome.machine.items()), highlight=False)
    table = Table(
        "sentences per second", "training step", "inference", "quartiles of training, ms", title="Speed"
    )
    batch = outcome.options["batch"]
    rows = [
        (f"foldbatch, batch {batch}", "train", "infer"),
        ("foldbatch, one tree at a time", "train_one", "infer_one"),
    ]
    rows += [(peer, f"{peer} train", f"{peer} infer") for peer in outcome.peers]
    for label, train, infer in rows:
        timing = outcome.timings[train]
        spread = f"{timing.low * 1e3:.1f} to {timing.high * 1e3:.1f}"
        table.add_row(label, f"{outcome.rate(train):.0f}", f"{outcome.rate(infer):.0f}", spread)
    ratios = [("one tree at a time", "train_one", "infer_one")]
    if outcome.peers:
        best = [f"{outcome.best_peer(task)} {task}" for task in ("train", "infer")]
        ratios.append(("the best PyTorch", best[0], best[1]))
    for label, *others in ratios:
        times = (
            outcome.rate(task) / outcome.rate(other)
            for task, other in zip(("train", "infer"), others, strict=True)
        )
        table.add_row(f"ratio to {label}", *(f"{ratio:.2f}x" for ratio in times), "")
    console.print(table)
    if outcome.no_peers:
        console.print(f"no peers: {outcome.no_peers}")
    phases = Table("phase", "ms", "share", title=f"One training step of {batch} trees, {outcome.nodes} nodes")
    total = sum(outcome.phases.values())
    for name, seconds in outcome.phases.items():
        phases.add_row(name, f"{seconds * 1e3:.2f}", f"{seconds / total:.1%}")
    console.print(phases)
    console.print("(phases are measured with the whole batch on one thread)")
    cold = outcome.trace_seconds
    console.print(
        f"first sight of the batch: tracing takes {cold * 1e3:.0f} ms more, "
        f"{cold / outcome.nodes * 1e6:.1f} us a node"
    )
    console.print(outcome.report, highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(main())
