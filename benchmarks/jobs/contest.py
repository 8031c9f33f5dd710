"""The contest of a job: ours and the peers, each with several seeds, and the margin with its uncertainty."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import foldbatch as fb
from benchmarks.jobs.job import Example, Job
from benchmarks.jobs.peers import Classes, Fitted, Peer, boosting, labels_of, logistic
from benchmarks.machine import machine
from benchmarks.options import add_backend, positive
from foldbatch.errors import FoldbatchError
from foldbatch.types import BackendName

OURS = "foldbatch"
BATCH = 32


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A model in the contest: for each seed how it did, and the CPU seconds that a seed took in the mean."""

    name: str
    fitted: list[Fitted]
    seconds: float


def ours(job: Job, seeds: Sequence[int], epochs: int, lr: float, backend: BackendName) -> Iterator[Fitted]:
    """Train the job's walk with each seed, and keep the epoch that is best on dev.

    The examples are traced once. Each seed draws other first parameters and another order of examples.
    """
    program = fb.compile(job.walk(job.train), backend, threads=1)
    train = program.prepare([(example.data, example.label) for example in job.train])
    dev, test = (program.prepare([(example.data, None) for example in part]) for part in (job.dev, job.test))
    for seed in seeds:
        program.params.update(
            {name: program.params._find(name)._initial(seed, name) for name in program.params}
        )
        rng, optimizer = np.random.default_rng(seed), fb.Adam(lr=lr)
        best = Fitted(-1.0, np.zeros(0, np.int64), "")
        for epoch in range(1, epochs + 1):
            optimizer.lr = lr * (1 - (epoch - 1) / epochs)
            order = rng.permutation(len(train))
            for start in range(0, len(order), BATCH):
                chosen = order[start : start + BATCH]
                step = seed * 10**6 + epoch * 10**4 + start // BATCH  # of random numbers
                _, gradients = program.value_and_grad([train[k] for k in chosen], step=step)
                optimizer.update(program.params, gradients, scale=1 / len(chosen))
            accuracy = float((answers(program, dev) == labels_of(job.dev)).mean())
            if accuracy > best.dev:
                best = Fitted(accuracy, answers(program, test), f"epoch {epoch}")
        yield best


def answers(program: fb.Program, examples: Sequence[Any]) -> Classes:
    """Return the class of each example."""
    found: Classes = np.array(list(program.run(examples))).argmax(axis=1)
    return found


def entry(name: str, fit: Peer, job: Job, seeds: Sequence[int]) -> Entry:
    """Fit a model with each seed, and tell at once how it did on dev."""
    start, fitted = time.process_time(), list[Fitted]()
    for seed, found in zip(seeds, fit(job, seeds), strict=True):
        fitted.append(found)
        seconds = time.process_time() - start
        line = f"{name}, seed {seed}: dev {found.dev:.1%}, {found.settings}, {seconds:.0f} s of CPU until now"
        print(line, file=sys.stderr, flush=True)
    return Entry(name, fitted, (time.process_time() - start) / len(seeds))


def right(found: Entry, test: Sequence[Example]) -> NDArray[np.float64]:
    """Return the share of seeds that are right, for each test example."""
    shares: NDArray[np.float64] = np.mean([each.test == labels_of(test) for each in found.fitted], axis=0)
    return shares


def uncertain(shares: NDArray[np.float64], test: Sequence[Example]) -> float:
    """Return the standard error of the mean of numbers, of which those of a group vary together.

    >>> apart = [Example(None, 0, str(k)) for k in range(4)]
    >>> uncertain(np.array([0.0, 0.0, 1.0, 1.0]), apart)
    0.25
    >>> together = [Example(None, 0, str(k // 2)) for k in range(4)]
    >>> round(uncertain(np.array([0.0, 0.0, 1.0, 1.0]), together), 3)
    0.354
    """
    sums: dict[str, float] = defaultdict(float)
    for example, share in zip(test, shares - shares.mean(), strict=True):
        sums[example.group] += float(share)
    return float(np.sqrt(np.sum(np.square(list(sums.values())))) / len(test))


def voted(found: Entry, classes: int) -> Entry:
    """Return the model that answers as most seeds do; among equals, the first class."""
    votes = np.sum([np.eye(classes)[each.test] for each in found.fitted], axis=0)
    name = f"{found.name}, vote of {len(found.fitted)} seeds"
    return Entry(name, [Fitted(np.nan, votes.argmax(axis=1), "")], found.seconds * len(found.fitted))


def scores(found: Entry, test: Sequence[Example]) -> tuple[float, float]:
    """Return the mean accuracy of seeds on test, and its standard error over seeds, of one seed zero."""
    each = [float((fitted.test == labels_of(test)).mean()) for fitted in found.fitted]
    return float(np.mean(each)), float(np.std(each, ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0


def margin(mine: Entry, peer: Entry, test: Sequence[Example]) -> tuple[float, float]:
    """Return how much better the mean of our seeds is; its standard error, of test examples and of seeds."""
    gain = right(mine, test) - right(peer, test)
    errors = uncertain(gain, test), scores(mine, test)[1], scores(peer, test)[1]
    return float(gain.mean()), float(np.sqrt(np.sum(np.square(errors))))


def report(job: Job, entries: Sequence[Entry]) -> list[str]:
    """Return the rows of a table in Markdown, and the margins of ours, the first entry, to each peer."""
    names = ("examples to train on", "dev", "test")
    sizes = ", ".join(f"{len(part)} {name}" for part, name in zip(job.parts, names, strict=True))
    labels = np.bincount(labels_of(job.test), minlength=len(job.classes)) / len(job.test)
    balance = ", ".join(f"{name} {share:.1%}" for name, share in zip(job.classes, labels, strict=True))
    lines = [f"{job.name}: {sizes}; of test {balance}", ""]
    lines += ["| model | dev | test | CPU seconds |", "|---|---|---|---|"]
    ours, *peers = entries
    mine = [ours, voted(ours, len(job.classes))] if len(ours.fitted) > 2 else [ours]
    for each in (*mine, *peers):
        mean, spread = scores(each, job.test)
        dev = np.mean([fitted.dev for fitted in each.fitted])
        shown = f"{mean:.1%} ± {spread:.1%}" if len(each.fitted) > 1 else f"{mean:.1%}"
        lines.append(
            f"| {each.name} | {'' if np.isnan(dev) else f'{dev:.1%}'} | {shown} | {each.seconds:.0f} |"
        )
    lines.append("")
    for each, peer in product(mine, peers):
        gain, error = margin(each, peer, job.test)
        verdict = "more than twice its standard error" if gain > 2 * error else "not certain"
        lines.append(
            f"{each.name} against {peer.name}: {100 * gain:+.1f} ± {100 * error:.1f} points, {verdict}"
        )
    return lines


@dataclass(frozen=True, slots=True)
class Defaults:
    """The settings of a job's models, which were chosen on dev, and the peers that take part."""

    epochs: int
    lr: float
    recurrent_epochs: int
    peers: tuple[str, ...] = ("linear", "boosting", "recurrent")


def contest(job: Job, defaults: Defaults, options: Namespace) -> list[Entry]:
    """Fit all models of a job."""
    seeds = range(options.seeds)
    epochs = options.epochs or defaults.epochs
    entries = [entry(OURS, partial(ours, epochs=epochs, lr=defaults.lr, backend=options.backend), job, seeds)]
    for peer in options.peers or defaults.peers:
        if peer == "linear":
            entries.append(entry("logistic regression", logistic, job, [0]))  # its one optimum needs no seed
            if job.bag:
                bag = replace(job, features=job.bag)
                entries.append(entry("logistic regression, no pairs", logistic, bag, [0]))
        elif peer == "boosting":
            entries.append(entry("gradient boosting", boosting, job, seeds))
        else:
            from benchmarks.jobs.recurrent import recurrent  # noqa: PLC0415 - PyTorch is optional

            fit = partial(recurrent, epochs=options.epochs or defaults.recurrent_epochs)
            entries.append(entry("BiLSTM", fit, job, seeds))
    return entries


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options that all jobs have."""

    def number(option: str, what: str, default: int | None = None) -> None:
        parser.add_argument(option, type=positive, default=default, metavar="N", help=what)

    number("--seeds", "seeds of each model (default 5)", 5)
    number("--epochs", "epochs of the networks (default: those of docs/accuracy.md)")
    number("--limit", "use so many examples of each part (default: all)")
    names = ("linear", "boosting", "recurrent")
    peers = f"of {', '.join(names)} (default: those of docs/accuracy.md)"
    parser.add_argument("--peers", choices=names, nargs="+", metavar="PEER", help=peers)
    add_backend(parser)


def run(
    parser: ArgumentParser,
    job_of: Callable[[Namespace], Job],
    defaults: Defaults,
    arguments: Sequence[str] | None,
) -> int:
    """Read the options, hold the contest, print the machine and the rows; return the exit status.

    The status is 2 for what the user can mend.
    """
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        print(f"{time.strftime('%Y-%m-%d')}, {machine()}", flush=True)
        job = job_of(options)
        job = job.cut(options.limit) if options.limit else job
        print("\n".join(report(job, contest(job, defaults, options))))
    except ModuleNotFoundError as error:
        print(f"error: {parser.prog}: {error}; pip install -e '.[jobs]'", file=sys.stderr)
        return 2
    except FoldbatchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
