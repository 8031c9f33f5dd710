"""``python -m foldbatch.bench``: measure what batching gains on this machine, or count what policies do."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from foldbatch.bench import compiler, schedule, sst
from foldbatch.bench.models import models
from foldbatch.bench.structures import count, random_lattices, structures
from foldbatch.bench.workload import load_trees, random_trees
from foldbatch.errors import FoldbatchError
from foldbatch.trees import Tree

LEGEND = """\
kernels a level: all kernel calls by the levels of the batch (aims: below 3 forward, below 4 backward)
no stages: all that a cell computes runs with each group of its calls; by depth: every cell at each level
array ops: passes over the rows; NumPy calls: what they take; a loop is one in both
one per node: a buffer for each node of all kernels, a row per call; planned: the buffers there are, likewise
(aim: half); kept: those of them that one kernel writes for others; held: by the program, arenas included,
scratch for the widest level only
CPU ms: of one thread, the run with the least; of loss and gradients, and below of a whole training step"""
CASES = ("sst", "policies", "compiler", "schedule")
DEFAULT_DATA = Path("../shared/data/sst")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if len(options.hidden) > 1 and options.case != "compiler":
        parser.error(f"argument --hidden: expected one size for the case {options.case}")
    console = Console()
    try:
        directory = options.data or (DEFAULT_DATA if DEFAULT_DATA.is_dir() else None)
        size = options.batch or (1024 if options.case == "schedule" else 256)
        trees = load_trees(directory, size) if directory else random_trees(size)
        source = f"trees of {directory}" if directory else "random trees (give --data for a treebank)"
        if options.case == "policies":
            console.print(f"sentences of {len(trees)} {source}")
            _show_policies(console, trees)
            return 0
        if options.case == "compiler":
            for hidden in options.hidden:
                console.print(f"SST Tree-LSTM, hidden {hidden}, {len(trees)} {source}")
                _show_compiler(console, compiler.run(trees, hidden, options.repeats))
            return 0
        hidden = options.hidden[0]
        if options.case == "schedule":
            console.print(f"{len(trees)} {source}; a step is one of the SST Tree-LSTM, hidden {hidden}")
            rows, chains = schedule.run(trees, hidden, options.repeats, options.nodes, options.backend)
            console.print(schedule.table(rows, chains))
            if options.plot:
                options.plot.write_text(schedule.plot(chains), encoding="utf-8")
            return 0
        console.print(f"SST Tree-LSTM, hidden {hidden}, {len(trees)} {source}")
        outcome = sst.run(trees, hidden, options.repeats, peers=not options.no_peers, backend=options.backend)
        if options.json:
            options.json.write_text(json.dumps(outcome.as_dict(), indent=1), encoding="utf-8")
    except (FoldbatchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _show(console, outcome)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m foldbatch.bench", description=__doc__)
    what = (
        "sst: speed on the SST Tree-LSTM; policies: groups of calls by scheduling policy; "
        "compiler: what stages, passes, planned buffers and loops save; schedule: what tracing and planning "
        "a batch take (default sst)"
    )
    parser.add_argument("case", nargs="?", choices=CASES, default="sst", help=what)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a directory with train.txt in bracket form")
    sizes = "size of h and c; several for the case compiler (default 150)"
    parser.add_argument("--hidden", type=_positive, nargs="+", default=[150], help=sizes)
    trees = "trees per batch (default 256); the case schedule also takes parts of them (default 1024)"
    parser.add_argument("--batch", type=_positive, help=trees)
    longest = "nodes of the longest chain of the case schedule (default 100000)"
    parser.add_argument("--nodes", type=_positive, default=100_000, help=longest)
    drawing = "draw the growth with a chain's length, case schedule, as SVG"
    parser.add_argument("--plot", type=_file, metavar="FILE", help=drawing)
    parser.add_argument("--repeats", type=_positive, default=11, help="runs of each task (default 11)")
    parser.add_argument(
        "--backend", default="auto", help="what computes: auto, numba or numpy (default auto)"
    )
    parser.add_argument(
        "--no-peers", action="store_true", help="do not measure PyTorch even if it is installed"
    )
    parser.add_argument("--json", type=_file, metavar="FILE", help="write the figures to a file")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {text}")
    return int(text)


def _file(text: str) -> Path:
    """Read the name of a file to write; what it is for takes long, so it is refused before."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in a folder that exists, found {text}")
    return path


def _show_policies(console: Console, trees: list[Tree]) -> None:
    """Print, per model, the groups that each policy makes and the bound: as papers count, and compiled."""
    lattices = random_lattices(trees)
    compiled = models(trees, lattices)
    policies = ("depth", "agenda", "component")
    table = Table(title="Groups of calls in a batch, by policy")
    for name in ("model", "cells", "calls", *policies, "bound"):
        table.add_column(name, justify="left" if name in ("model", "cells") else "right")
    for name, batch in structures(trees, lattices).items():
        for label, written, cells in ((name, "traces", batch), ("", "blocks", compiled[name])):
            found = count(cells)
            groups = [str(found.groups[f"by_{policy}"]) for policy in policies]
            table.add_row(label, written, str(found.calls), *groups, str(found.bound))
    console.print(table)
    console.print("traces: cells as papers count them, calls written by hand; blocks: a compiled model's")


def _show_compiler(console: Console, outcome: compiler.Outcome) -> None:
    """Print what the compiler saves, and what the columns count."""
    console.print(", ".join(f"{name} {value}" for name, value in outcome.machine.items()), highlight=False)
    for table in (_counts_table(outcome), _memory_table(outcome), _steps_table(outcome)):
        console.print(table)
    console.print(LEGEND)


def _counts_table(outcome: compiler.Outcome) -> Table:
    table = _table(
        f"Calls per batch of {max(found.levels for found, _ in outcome.counts.values())} levels",
        ("forward + backward", "kernels", "a level", "array ops", "NumPy calls", "CPU ms"),
    )
    for name, (counts, seconds) in outcome.counts.items():
        per_level = " + ".join(f"{calls / counts.levels:.2f}" for calls in counts.kernels)
        pairs = [f"{a} + {b}" for a, b in (counts.kernels, counts.ops, counts.arrays)]
        table.add_row(name, pairs[0], per_level, *pairs[1:], f"{seconds * 1e3:.1f}")
    return table


def _memory_table(outcome: compiler.Outcome) -> Table:
    table = _table(
        "Megabytes of buffers for one batch",
        ("", "one per node", "planned", "share", "kept", "held", "CPU ms"),
    )
    for name, (found, seconds) in outcome.memory.items():
        sizes = [f"{size / 1e6:.1f}" for size in (found.unplanned, found.planned, found.kept, found.held)]
        table.add_row(
            name, *sizes[:2], f"{found.planned / found.unplanned:.0%}", *sizes[2:], f"{seconds * 1e3:.1f}"
        )
    return table


def _steps_table(outcome: compiler.Outcome) -> Table:
    names = list(outcome.steps)
    columns = (column for name in names for column in (f"{name}, ms", "share"))
    table = _table("CPU time of a training step", ("kind", *columns))
    whole = {name: sum(spent.values()) for name, spent in outcome.steps.items()}
    for kind in outcome.steps[names[0]]:
        figures = ((spent[kind], spent[kind] / whole[name]) for name, spent in outcome.steps.items())
        table.add_row(kind, *(text for t, share in figures for text in (f"{t * 1e3:.1f}", f"{share:.1%}")))
    for kind, all_of_it in (("all", whole), ("without clocks in kernels", outcome.undisturbed)):
        table.add_row(kind, *(text for name in names for text in (f"{all_of_it[name] * 1e3:.1f}", "")))
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left")
    return table


def _show(console: Console, outcome: sst.Outcome) -> None:
    console.print(", ".join(f"{name} {value}" for name, value in outcome.machine.items()), highlight=False)
    table = Table(
        "sentences per second", "training step", "inference", "quartiles of training, ms", title="Speed"
    )
    batch = outcome.options["batch"]
    rows = [
        (f"foldbatch ({outcome.options['backend']}), batch {batch}", "train", "infer"),
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
