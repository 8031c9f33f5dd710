"""The parts of a run, the most important first, each with the seconds below which it is not begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.gpu import apart, checks, rates
from benchmarks.gpu.card import told
from benchmarks.gpu.contenders import MODELS, SST, OurModel
from benchmarks.gpu.fold_times import FOLD, fold_times
from benchmarks.gpu.run import Run
from benchmarks.gpu.steps import launch_model, step_costs
from benchmarks.gpu.times import times, times_by_node, times_compiled

SMALL = 20  # states of the model that the oracle computes op by op, `FEW` trees of it
FEW = 8
WIDE = 512  # states of the model that is timed with one tree a batch, too
BUSY = "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run.

    Attributes:
        name: in messages.
        least: seconds that must be left to begin it.
        do: adds to the run's record.
        decides: what is known after it; such a part prints what it found.
    """

    name: str
    least: float
    do: Callable[[Run], None]
    decides: str = ""


def parts_of(run: Run) -> list[Part]:
    """Return all parts, in order."""
    settings = run.settings
    first, size = settings.hidden[0], settings.batches[0]
    others = [batch for batch in settings.batches if batch != size]
    sst = partial(times, name=SST)
    found = [Part("rates of the card", 0, _rates), Part("accuracy", 0, _accuracy)]
    if settings.law:
        found += [
            Part(
                "random programs",
                0,
                lambda run: run.record.checks.append(apart.law(settings.backend, settings.law)),
            ),
            Part("tests marked gpu", 60, lambda run: run.record.checks.append(apart.card_tests(60))),
            Part("compute-sanitizer memcheck", 60, partial(_sanitized, tool="memcheck")),
        ]
    found += [
        Part(f"{SST}, hidden {first}, batch {size}", 10, partial(sst, hidden=first, size=size)),
        Part("where a step's time goes", 10, partial(_step, hidden=first, size=size)),
        *(Part(f"{SST}, hidden {first}, batch {b}", 10, partial(sst, hidden=first, size=b)) for b in others),
        *(
            Part(f"{SST}, hidden {h}, batch {size}", 15, partial(sst, hidden=h, size=size))
            for h in settings.hidden[1:]
        ),
        *(
            Part(f"{SST}, hidden {h}, batch 1", 15, partial(sst, hidden=h, size=1))
            for h in settings.hidden[1:]
            if h == WIDE
        ),
        Part(
            f"{FOLD}, batch {settings.fold_batches[0]}",
            15,
            partial(fold_times, size=settings.fold_batches[0]),
        ),
        *(
            Part(
                f"{name}, hidden {first}, batch {size}",
                10,
                partial(times, name=name, hidden=first, size=size),
            )
            for name in MODELS
            if name != SST
        ),
        Part(f"{SST}, hidden {first}, tf32", 10, partial(sst, hidden=first, size=size, precision="tf32")),
        Part(f"{SST}, node by node", 20, partial(times_by_node, hidden=first, size=min(16, size))),
        *(Part(f"{FOLD}, batch {b}", 20, partial(fold_times, size=b)) for b in settings.fold_batches[1:]),
        *(
            Part(f"{SST}, hidden {h}, tf32", 15, partial(sst, hidden=h, size=size, precision="tf32"))
            for h in settings.hidden[1:]
        ),
    ]
    if settings.law:
        found += [
            Part(f"compute-sanitizer {tool}", 60, partial(_sanitized, tool=tool)) for tool in apart.TOOLS[1:]
        ]
    found += [
        Part(f"{SST}, hidden {h}, batch {b}", 15, partial(sst, hidden=h, size=b))
        for h in settings.hidden[1:]
        for b in others
        if (h, b) != (WIDE, 1)
    ]
    if run.card.is_gpu:  # on a CPU it takes minutes to compile
        found.append(Part(f"{SST}, torch.compile", 90, partial(times_compiled, hidden=first, size=size)))
    return found


def _rates(run: Run) -> None:
    sizes = run.settings.rates if run.card.is_gpu else rates.QUICK  # else it would take minutes
    measured, failed = rates.measure(run.card, sizes)
    run.record.facts["card, just after products"] = told(BUSY)
    run.record.rates |= measured
    run.record.left_out |= failed


def _accuracy(run: Run) -> None:
    settings = run.settings
    few = run.trees[:FEW]
    run.record.checks += checks.accuracy(few, SMALL, settings.words, settings.backend, "numpy")
    sizes = (1, FEW, 3, 2, FEW + 1)
    batches = [run.trees[k : k + size] for k, size in enumerate(sizes)]
    run.record.checks += checks.training(batches, settings.hidden[0], settings.words, settings.backend)
    many = run.trees[: min(64, len(run.trees))]
    run.record.checks += checks.accuracy(many, settings.hidden[0], settings.words, settings.backend, "numpy")


def _sanitized(run: Run, tool: str) -> None:
    seconds = min(90.0, run.budget.left())
    run.record.checks.append(apart.sanitized(run.settings.backend, tool, seconds))


def _step(run: Run, hidden: int, size: int) -> None:
    settings, name = run.settings, f"{SST}, hidden {hidden}"
    engine = "straight" if settings.backend.startswith("cuda") else "auto"  # it is looked at call by call
    ours = OurModel(MODELS[SST], hidden, settings.words, settings.backend, engine=engine)
    for batch in dict.fromkeys((size, 1)):
        examples = run.batches(batch)[0]
        found = step_costs(ours, hidden, examples, run.card, run.record.rates, settings.repeats)
        run.record.steps.append({"model": name, **found})
    run.record.steps[-2 if size != 1 else -1]["launch model"] = launch_model(ours, run.batches(size)[0])
