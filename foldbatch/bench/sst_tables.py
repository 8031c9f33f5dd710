"""The case ``sst`` as the command shows it: options and tables."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from rich.console import RenderableType
from rich.table import Table

from foldbatch.bench import sst
from foldbatch.bench.case import Case, Figure
from foldbatch.bench.figures import COLOURS, new_figure
from foldbatch.bench.options import add_backend, add_batch, add_data, add_repeats, positive, trees_of


def _run(options: Namespace) -> sst.Outcome:
    trees, _ = trees_of(options, options.batch)
    return sst.run(
        trees, options.hidden, options.repeats, peers=not options.no_peers, backend=options.backend
    )


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)
    size = "size of h and c (default 150)"
    parser.add_argument("--hidden", type=positive, default=150, metavar="N", help=size)
    add_batch(parser, 256)
    add_repeats(parser, 11)
    add_backend(parser)
    parser.add_argument(
        "--no-peers", action="store_true", help="do not measure PyTorch even if it is installed"
    )


def _tables(outcome: sst.Outcome) -> list[RenderableType]:
    parts: list[RenderableType] = []
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
    parts.append(table)
    if outcome.no_peers:
        parts.append(f"no peers: {outcome.no_peers}")
    phases = Table("phase", "ms", "share", title=f"One training step of {batch} trees, {outcome.nodes} nodes")
    total = sum(outcome.phases.values())
    for name, seconds in outcome.phases.items():
        phases.add_row(name, f"{seconds * 1e3:.2f}", f"{seconds / total:.1%}")
    parts.append(phases)
    parts.append("(phases are measured with the whole batch on one thread)")
    cold = outcome.trace_seconds
    parts.append(
        f"first sight of the batch: tracing takes {cold * 1e3:.0f} ms more, "
        f"{cold / outcome.nodes * 1e6:.1f} us a node"
    )
    parts.append(outcome.report)
    return parts


def _figure(outcome: sst.Outcome) -> Figure:
    """Draw the phases of a training step."""
    figure = new_figure(1, 1)
    axes = figure.add_subplot(ylabel="ms")
    axes.bar(list(outcome.phases), [seconds * 1e3 for seconds in outcome.phases.values()], color=COLOURS[0])
    return figure


CASE = Case(
    "sst",
    "speed on the SST Tree-LSTM",
    _add_arguments,
    _run,
    _tables,
    sst.Outcome.as_dict,
    _figure,
)
