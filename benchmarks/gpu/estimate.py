"""``python -m benchmarks.gpu.estimate``: what a training step may take on a card, by counts and a model.

The engine itself is counted, on the CPU: launches, products, bytes, and every call of the step. Rates of the
card are those of `foldbatch.engines.cuda.rates`. *Least* is no estimate but a bound: no step is quicker than
the largest of its products, its bytes and its copies. *Estimated* is what the engine itself chooses by.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.floor import count
from benchmarks.gpu.contenders import MODELS, PRECISIONS, SST, OurModel
from benchmarks.gpu.cost import Cost, least_bytes
from benchmarks.gpu.steps import direction_costs, levels, step_floor
from benchmarks.gpu.trees import WORDS, sst_like_trees
from benchmarks.options import positive
from foldbatch.engines.cuda.barriers import waits
from foldbatch.engines.cuda.choice import Choice, choose
from foldbatch.engines.cuda.control import Call, records_of
from foldbatch.engines.cuda.launching import calls_for
from foldbatch.engines.cuda.rates import CARDS, Rates, rates_of
from foldbatch.engines.cuda.texts.records import RECORD
from foldbatch.engines.cuda.ways import ENGINES
from foldbatch.engines.cuda.work import Work, planned_of, works_of
from foldbatch.engines.launch import Ints
from foldbatch.trees import Tree

MORE = 3  # launches of a persistent step: where backward begins, the check of the update, and all parameters


@dataclass(frozen=True, slots=True)
class Step:
    """A training step, counted.

    Attributes:
        cost: what it asks of the card, straight.
        works: what its calls do, the update's last.
        barriers: whether a persistent kernel has a barrier behind each call.
        planned: calls of cells, which the host plans.
        control: bytes of its table: whole numbers and records, without the examples' data.
        nbytes: of its buffers.
    """

    cost: Cost
    works: Sequence[Work]
    barriers: Sequence[bool]
    planned: int
    control: int
    nbytes: int


class _Listed(NamedTuple):
    records: Ints


class _Lister:
    """A launcher that arranges all calls in order, and launches nothing."""

    def arranged(self, forward: Sequence[Call], backward: Sequence[Call], numbers: Ints) -> _Listed:
        """Return all calls as records."""
        return _Listed(records_of([*forward, *backward]))

    def launch(self, arranged: Any, launched: Any) -> int:
        """Refuse: nothing is launched here."""
        raise NotImplementedError


def step_of(trees: Sequence[Tree], hidden: int, words: int = WORDS) -> Step:
    """Return a training step of the SST Tree-LSTM; nothing is computed."""
    ours = OurModel(MODELS[SST], hidden, words, "cuda-on-cpu")
    direction_costs(ours, trees, dry=True)  # brings parameters to the device, which happens once
    cost = sum(direction_costs(ours, trees, dry=True).values(), Cost())
    engine: Any = ours.program.engine
    ready = engine.ready(ours.program.schedule(trees), training=True)
    ops, kernels = ready.phase.ops, ready.phase.kernels
    calls = calls_for(ops, ready, _Lister())
    assert calls is not None
    both = [*calls.forward, *calls.backward]
    works = works_of(ops, both, kernels, calls.numbers)
    barriers = [*waits(both, ops, kernels)[1:], True, True, True]
    update = _update(ours, count([trees]).words)
    records = 8 * RECORD * (1 + len(ours.program.params))
    return Step(
        cost,
        [*works, *update],
        barriers,
        planned_of(works),
        calls.numbers.nbytes + records,
        engine.nbytes(ready),
    )


def _update(ours: OurModel, rows: int) -> list[Work]:
    """Return what Adam's step does: it reads four numbers and writes three, of all weights and some rows."""
    sizes = {name: value.size for name, value in ours.program.params.items()}
    table = sizes.pop("embedding.weight")
    numbers = sum(sizes.values()) + rows * table // len(ours.vocabulary)
    check = Work("fault_at", "update", blocks=1)
    return [check, Work("update_all", "update", blocks=1024, nbytes=7 * 4 * numbers)]


def measures(rates: Rates) -> Mapping[str, float]:
    """Return rates by the names of `benchmarks.gpu.rates.measure`."""
    products = {f"product {precision}": rate for precision, rate in rates.products.items()}
    others = {"copy": rates.memory, "upload": rates.upload, "launch": rates.launch}
    return products | others | {"launch in a graph": rates.node}


def measured(rates: Rates, found: Mapping[str, float]) -> Rates:
    """Return rates with what `benchmarks.gpu.rates.measure` found of a card in the place of what is assumed.

    >>> measured(CARDS["H200"], {"launch in a graph": 1e-6, "product fp32": 5e13}).node
    1e-06
    """
    names = {"copy": "memory", "upload": "upload", "launch": "launch", "launch in a graph": "node"}
    numbers: Any = {field: found[name] for name, field in names.items() if name in found}
    kinds = {kind: found.get(f"product {kind}", rate) for kind, rate in rates.products.items()}
    return replace(rates, card=f"{rates.card}, measured", products=kinds, **numbers)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.estimate", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--hidden", type=positive, nargs="+", default=[150, 300, 512, 1024], metavar="H")
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 16, 64, 256, 1024], metavar="N")
    parser.add_argument("--card", default="H200", help=f"one of {', '.join(CARDS)}, or another: guesses")
    parser.add_argument("--rates", type=Path, help="what `python -m benchmarks.gpu --json` wrote on the card")
    parser.add_argument("--precision", choices=PRECISIONS, nargs="+", default=["fp32", "tf32"])
    parser.add_argument("--levels", action="store_true", help="also what each level takes")
    options = parser.parse_args(arguments)
    rates, trees = rates_of(options.card), sst_like_trees(max(options.batch))
    if options.rates is not None:
        try:
            rates = measured(rates, json.loads(options.rates.read_text(encoding="utf-8"))["rates"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            parser.error(
                f"--rates: expected a file that `python -m benchmarks.gpu --json` wrote, found {error!r}"
            )
    least, estimated, by_level = [], [], []
    for hidden in options.hidden:
        for batch in options.batch:
            examples = trees[:batch]
            step = step_of(examples, hidden)
            least.append((str(hidden), str(batch), *_least(step, rates, hidden, examples)))
            for precision in options.precision:
                known, new = (
                    choose(
                        step.works,
                        rates,
                        precision=precision,
                        nbytes=step.nbytes,
                        barriers=step.barriers,
                        planned=planned,
                    )
                    for planned in (0, step.planned)
                )
                estimated.append((str(hidden), str(batch), precision, *_estimated(step, known, new)))
                by_level += [f"hidden {hidden}, batch {batch}, {precision}", new.table(), ""]
    head = "hidden", "batch"
    counts = (
        "levels",
        "launches + products",
        "copies in",
        "MB to the card",
        "of it control",
        "GFLOP",
        "MB moved",
    )
    bounds = "products fp32 ms", "products tf32 ms", "bytes ms"
    print(f"Counted, and the least time on {rates.card}:\n")
    _print_table((*head, *counts, *bounds), least)
    print(f"\nEstimated for {rates.card}, {' / '.join(ENGINES)}; the last four are of the last choice:\n")
    ms = "planned before, ms", "chosen", "new batches, ms", "chosen"
    parts = "between calls, ms", "operations", "bytes", "latency"
    _print_table((*head, "precision", "launches", *ms, *parts), estimated)
    if options.levels:
        print("", *by_level, sep="\n")


def _least(step: Step, rates: Rates, hidden: int, examples: Sequence[Tree]) -> tuple[str, ...]:
    counts, cost = count([examples]), step.cost
    operations = counts.operations(hidden, training=True, shared=True)
    fp32, tf32 = (
        step_floor(cost, measures(rates), hidden, examples, precision) for precision in ("fp32", "tf32")
    )
    return (
        str(levels(examples)),
        f"{cost.submitted - cost.products} + {cost.products}",
        str(cost.copies_in),
        f"{cost.bytes_in / 1e6:.2f}",
        f"{step.control / 1e6:.2f}",
        f"{operations / 1e9:.2f}",
        f"{least_bytes(counts, hidden) / 1e6:.0f}",
        *(f"{1e3 * seconds:.2f}" for seconds in (fp32["products"], tf32["products"], fp32["bytes"])),
    )


def _estimated(step: Step, known: Choice, new: Choice) -> tuple[str, ...]:
    launches = new.launches
    return (
        f"{step.cost.submitted} / {launches['captured']} / {launches['persistent'] + MORE}",
        " / ".join(f"{1e3 * known.seconds[engine]:.2f}" for engine in ENGINES),
        known.engine,
        " / ".join(f"{1e3 * new.seconds[engine]:.2f}" for engine in ENGINES),
        new.engine,
        *(f"{1e3 * seconds:.2f}" for seconds in new.parts.values()),
    )


def _print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
