"""The case ``sst`` as the command shows it: options, tables, picture."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from shutil import which

from rich.console import RenderableType
from rich.table import Table

from benchmarks import sst
from benchmarks.case import Case
from benchmarks.contest import INFER, TASKS, TRAIN
from benchmarks.figures import COLOURS, Axes, Figure, log_axes, new_figure
from benchmarks.options import add_backend, add_data, add_repeats, positive, trees_of
from benchmarks.sst_outcome import Found, Outcome, Settings
from benchmarks.variants import RIVALS

TITLES = {TRAIN: "training", INFER: "inference"}


def _peer_python(text: str) -> tuple[str, str]:
    peer, _, python = text.partition("=")
    if peer not in RIVALS:
        raise ArgumentTypeError(f"expected PEER=PATH with a peer of {', '.join(RIVALS)}, found {text}")
    if which(python) is None:
        raise ArgumentTypeError(f"expected the path of an interpreter that can be run, found {python!r}")
    return peer, python


def add_peers(parser: ArgumentParser) -> None:
    """Add the options that say which peers are measured."""
    names = f"peers to measure (default: {' '.join(RIVALS)}, as far as they are installed)"
    parser.add_argument(
        "--peers", choices=RIVALS, nargs="+", default=list(RIVALS), metavar="PEER", help=names
    )
    parser.add_argument("--no-peers", action="store_true", help="measure no peer, even if it is installed")
    where = "the interpreter that has a peer (default: this one); once per peer"
    parser.add_argument(
        "--peer-python", type=_peer_python, action="append", default=[], metavar="PEER=PATH", help=where
    )


def pythons_of(options: Namespace) -> dict[str, str]:
    """Return the interpreter of each peer that is measured."""
    pythons = dict.fromkeys(() if options.no_peers else options.peers, sys.executable)
    return pythons | {peer: python for peer, python in options.peer_python if peer in pythons}


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)

    def several(option: str, default: list[int], what: str) -> None:
        shown = " ".join(map(str, default))
        what = f"{what} (default {shown})"
        parser.add_argument(option, type=positive, nargs="+", default=default, metavar="N", help=what)

    several("--hidden", [150], "sizes of h, c and the embedding")
    several("--batch", [1, 16, 64, 256], "trees per batch")
    add_repeats(parser, 7)
    add_backend(parser)
    add_peers(parser)
    largest = "largest batch on which PyTorch is run node by node, which gains nothing from one (default 16)"
    parser.add_argument("--per-node-batch", type=positive, default=16, metavar="N", help=largest)
    busy = "time everything once more beside N processes that compute flat out, and tell what speed is kept"
    parser.add_argument("--busy", type=positive, default=0, metavar="N", help=busy)
    memory = "also measure the memory of training on the largest batches, each contender in a fresh process"
    parser.add_argument("--memory", action="store_true", help=memory)
    seed = "from which batches are drawn (default 0)"
    parser.add_argument("--seed", type=int, default=0, metavar="N", help=seed)


def settings_of(options: Namespace) -> Settings:
    """Return what options ask for."""
    return Settings(
        tuple(dict.fromkeys(options.hidden)),
        tuple(sorted(set(options.batch))),
        options.repeats,
        options.backend,
        pythons_of(options),
        options.per_node_batch,
        options.busy,
        options.memory,
        abs(options.seed),
    )


def _run(options: Namespace) -> Outcome:
    settings = settings_of(options)
    trees, source = trees_of(options, 16 * max(16, *settings.batches), whole=True)
    return sst.run(trees, f"{len(trees)} {source}", settings)


# -- tables


def tables(outcome: Outcome) -> list[RenderableType]:
    """Return what is printed."""
    settings = outcome.settings
    runs = f"medians of {settings.repeats} interleaved runs, ± half the distance of the quartiles"
    runs += "; of ours, examples traced before, and new ones, which are traced in the run"
    parts: list[RenderableType] = [f"SST Tree-LSTM; batches drawn from {outcome.source}; {runs}"]
    for hidden in settings.hidden:
        found = [each for each in outcome.found if each.hidden == hidden]
        parts += [_speeds(found, task) for task in TASKS]
        parts += [_floors(found), _phases(found)]
        if settings.busy:
            parts += [_kept(found, settings.busy)]
        if hidden in outcome.memory:
            parts.append(_memory(outcome, hidden))
    parts += [f"not measured: {name}: {why}" for name, why in outcome.absent.items()]
    if not settings.peers:
        parts.append("no peers: not asked for")
    return parts


def _table(title: str, first: str, found: Sequence[Found]) -> Table:
    table = Table(title=title)
    table.add_column(first)
    for each in found:
        table.add_column(f"batch {each.batch}", justify="right")
    return table


def _speeds(found: Sequence[Found], task: str) -> Table:
    hidden = found[0].hidden
    table = _table(f"Trees per second, {TITLES[task]}, hidden {hidden}", "contender", found)
    for name in _names(found):
        cells = (
            f"{each.per_second(name, task):.0f} ±{each.timings[name][task].spread:.0%}"
            if name in each.timings
            else ""
            for each in found
        )
        table.add_row(name, *cells)
    table.add_section()
    table.add_row("against one tree at a time", *(f"{each.speedup(task):.2f}x" for each in found))
    if any(each.best_peer(task) for each in found):
        for title, new in (("against the best peer", False), ("the same, new examples", True)):
            ratios = (each.ratio(each.new if new else each.ours, task) for each in found)
            table.add_row(title, *("" if ratio is None else f"{ratio:.2f}x" for ratio in ratios))
    return table


def _names(found: Sequence[Found]) -> list[str]:
    return list(dict.fromkeys(name for each in found for name in each.timings))


def _floors(found: Sequence[Found]) -> Table:
    table = _table(f"The floor: matrix products alone, hidden {found[0].hidden}", "", found)
    table.add_row("products on all cores, GFLOP/s", *(f"{each.rate / 1e9:.0f}" for each in found))
    for task in TASKS:
        table.add_section()
        ours = (each.timings[each.ours][task].median for each in found)
        table.add_row(f"{TITLES[task]}, ms, ours", *(f"{seconds * 1e3:.2f}" for seconds in ours))
        for shared, name in ((True, "distinct words once"), (False, "every leaf its own")):
            floors = (f"{each.floor(task, shared=shared) * 1e3:.2f}" for each in found)
            table.add_row(f"floor, ms, {name}", *floors)
            shares = (f"{each.of_floor(task, shared=shared):.0%}" for each in found)
            table.add_row(f"floor as a share of ours, {name}", *shares)
    return table


def _phases(found: Sequence[Found]) -> Table:
    table = _table(
        f"Phases of our training step, ms and share, whole batch on one thread, hidden {found[0].hidden}",
        "phase",
        found,
    )
    for phase in found[0].phases:
        cells = (
            f"{each.phases[phase] * 1e3:.2f} {each.phases[phase] / sum(each.phases.values()):.1%}"
            for each in found
        )
        table.add_row(phase, *cells)
    table.add_section()
    table.add_row("nodes in a batch", *(f"{each.counts.nodes / each.batches:.0f}" for each in found))
    table.add_row("tracing at first sight, ms more", *(f"{each.trace.median * 1e3:.2f}" for each in found))
    per_node = (each.trace.median * each.batches / each.counts.nodes for each in found)
    table.add_row("the same, us a node", *(f"{seconds * 1e6:.2f}" for seconds in per_node))
    return table


def _kept(found: Sequence[Found], busy: int) -> Table:
    beside = f"{busy} busy process{'es' * (busy > 1)}"
    table = _table(
        f"Speed kept beside {beside}, hidden {found[0].hidden}: training, inference", "contender", found
    )
    for name in _names(found):
        cells = (
            ", ".join(f"{each.kept(name, task):.0%}" for task in TASKS) if name in each.busy else ""
            for each in found
        )
        table.add_row(name, *cells)
    return table


def _memory(outcome: Outcome, hidden: int) -> Table:
    largest = max(outcome.settings.batches)
    table = Table(title=f"Peak resident MB of a fresh process that trains, batch {largest}, hidden {hidden}")
    for name in ("contender", "after import", "model made", "trained", "trained, less import"):
        table.add_column(name, justify="left" if name == "contender" else "right")
    for name, peak in outcome.memory[hidden].items():
        sizes = (peak.imported, peak.ready, peak.trained, peak.trained - peak.imported)
        table.add_row(name, *(f"{size / 1e6:.0f}" for size in sizes))
    return table


# -- picture


def figure(outcome: Outcome) -> Figure:
    """Draw the speed over batch size, each library's at its best, and the phases of our step."""
    sizes = outcome.settings.hidden
    drawn, panels = new_figure(len(sizes), 3)
    for row, hidden in enumerate(sizes):
        found = [each for each in outcome.found if each.hidden == hidden]
        for task, axes in zip(TASKS, panels[3 * row :], strict=False):
            for colour, (library, ups) in zip(COLOURS, _speedups(found, task).items(), strict=False):
                axes.plot(list(ups), list(ups.values()), "o-", color=colour, label=library)
            log_axes(axes, "trees in a batch", "times our speed at one tree at a time")
            axes.set_title(f"hidden {hidden}, {TITLES[task]}, best variant of each")
            axes.set_xticks([each.batch for each in found], [str(each.batch) for each in found])
        _stack(panels[3 * row + 2], found)
    return drawn


def _speedups(found: Sequence[Found], task: str) -> dict[str, dict[int, float]]:
    """Return, by library, its fastest variant's speed at each size of batch, ours at one tree being 1."""
    ups: dict[str, dict[int, float]] = {}
    for each in found:
        for name in each.timings:
            library = ups.setdefault(name.partition(" ")[0], {})
            up = each.per_second(name, task) * each.one[task].median
            library[each.batch] = max(up, library.get(each.batch, 0.0))
    return ups


def _stack(axes: Axes, found: Sequence[Found]) -> None:
    """Draw the phases of our step as stacked bars."""
    below = [0.0] * len(found)
    names = [str(each.batch) for each in found]
    for colour, phase in zip(COLOURS, found[0].phases, strict=False):
        heights = [each.phases[phase] / each.batch * 1e6 for each in found]
        axes.bar(names, heights, 0.6, below, color=colour, label=phase)
        below = [a + b for a, b in zip(below, heights, strict=True)]
    axes.set(
        title=f"hidden {found[0].hidden}, phases of our training step, one thread",
        xlabel="trees in a batch",
        ylabel="us a tree",
    )
    axes.legend(fontsize="small")


CASE = Case(
    "sst",
    "training and inference of the Tree-LSTM on the Stanford Sentiment Treebank, beside peers",
    _add_arguments,
    _run,
    tables,
    Outcome.as_dict,
    figure,
)
