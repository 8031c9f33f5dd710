"""The command ``python -m benchmarks.gpu``: checks the CUDA engine on a card, then times it."""

from __future__ import annotations

import faulthandler
import json
import math
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.card import facts, find_card
from benchmarks.gpu.page import page
from benchmarks.gpu.parts import Part, parts_of
from benchmarks.gpu.race import described
from benchmarks.gpu.record import Budget, Check
from benchmarks.gpu.run import Run, Settings, quick
from benchmarks.gpu.trees import numbered_words, sst_like_trees
from benchmarks.inside import backend_name
from benchmarks.workload import load_trees
from foldbatch.errors import BackendError, FoldbatchError
from foldbatch.system.files import output_file, write_whole

HANGS = 60.0  # seconds after its time is over when the process ends itself


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and time everything; return the exit status, see `run_parts`."""
    what = "Check the CUDA engine on this machine's card, then time it beside PyTorch."
    return run_parts(arguments, "benchmarks.gpu", what, parts_of, Settings("cuda"), 400.0)


def run_parts(
    arguments: Sequence[str] | None,
    module: str,
    description: str,
    parts: Callable[[Run], Sequence[Part]],
    settings: Settings,
    seconds: float,
) -> int:
    """Run parts one after the other; return the exit status.

    It is 0, 1 if a check failed, 2 for what the user can mend.

    Args:
        arguments: of the command line.
        module: whose command it is.
        description: of the command.
        parts: returns them for a run.
        settings: of a run that is not quick.
        seconds: about how long it may take unless the user says so.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(module, description, seconds).parse_args(given)
    settings = quick(options.backend) if options.quick else replace(settings, backend=options.backend)
    if options.backend.startswith("cuda-on-"):
        with suppress(ImportError):
            import_module("tests.backends")  # which enters what stands for a card
    try:
        backend_name(options.backend)
        if options.data:
            trees, words = numbered_words(load_trees(options.data))
            settings = replace(settings, words=words)
        else:
            trees = sst_like_trees(settings.trees, 0, settings.words)
    except (FoldbatchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    run = Run(settings, find_card(options.backend), trees, Budget(options.seconds))
    kind = "the treebank's" if options.data else "drawn like the treebank's"
    run.record.facts = {
        "command": f"python -m {' '.join([module, *given])}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "backend": options.backend,
        "trees": f"{kind} ({len(trees)}), {settings.words} words",
        **facts(),
    }
    if not run.card.is_gpu:
        run.record.facts["no card"] = "the CPU stands for one: figures say nothing of GPUs"
    if not options.quick:  # a process that hangs keeps the card from others
        faulthandler.dump_traceback_later(options.seconds + HANGS, exit=True)
    _run(run, parts(run), options)
    faulthandler.cancel_dump_traceback_later()
    print(page(run.record))
    return 0 if run.record.passed else 1


def _run(run: Run, parts: Sequence[Part], options: Namespace) -> None:
    for part in parts:
        if run.budget.left() < part.least:
            run.record.left_out[part.name] = f"no time was left after {run.budget.spent():.0f} s"
            continue
        before, known = run.budget.spent(), run.record.as_dict()
        try:
            part.do(run)
        except KeyboardInterrupt:
            run.record.left_out[part.name] = "interrupted"
            break
        except Exception as error:  # noqa: BLE001 - what is left shall be measured all the same
            if isinstance(error, BackendError) and not part.decides:
                run.record.left_out[part.name] = described(error)
            else:
                run.record.checks.append(Check(part.name, "failed", described(error)))
        print(f"{run.budget.spent():6.1f} s: {part.name} ({run.budget.spent() - before:.1f} s)", flush=True)
        if part.decides:
            print("\n".join([f"         decides: {part.decides}", *_news(run, known)]), flush=True)
        run.record.facts["seconds"] = f"{run.budget.spent():.0f} of {run.budget.seconds:.0f}"
        _write(run, options)  # after each part: a crash loses no figures
    _write(run, options)


def _news(run: Run, known: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines on what a run found since its record was that."""
    record = run.record
    for check in record.checks[len(known["checks"]) :]:
        yield f"         {check.state}: {check.name}: {check.found}"
    for name, rate in record.rates.items():
        if name not in known["rates"]:
            yield f"         {name}: {rate:.3g}"
    for way in record.ways[len(known["ways"]) :]:
        counts = ", ".join(
            f"{name} {value:,.6g}" for name, value in way.items() if not isinstance(value, str)
        )
        yield f"         {way['way']}: {counts}"
    for row in record.rows[len(known["rows"]) :]:
        times = f"{1e3 * row.seconds:.3f} ms, until the call returned {1e3 * row.host:.3f}"
        yield f"         {row.who}, {row.task}: {times}"
    for name, why in record.left_out.items():
        if name not in known["left_out"]:
            yield f"         not done: {name}: {why}"


def _write(run: Run, options: Namespace) -> None:
    if options.json:
        write_whole(options.json, (json.dumps(run.record.as_dict(), indent=1) + "\n").encode())
    if options.page:
        write_whole(options.page, page(run.record).encode())


def _parser(module: str, description: str, seconds: float) -> ArgumentParser:
    parser = ArgumentParser(prog=f"python -m {module}", description=description.splitlines()[0])
    parser.add_argument("--backend", default="cuda", help="what is checked and timed (default cuda)")
    what = f"about how long it may take (default {seconds:.0f}); what is left out is named"
    parser.add_argument("--seconds", type=_above_zero, default=seconds, metavar="S", help=what)
    what = "try everything on tiny models, to see that it runs; it needs no card with --backend cuda-on-cpu"
    parser.add_argument("--quick", action="store_true", help=what)
    what = "a directory with train.txt in bracket form (default: random trees like the treebank's)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=what)
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write all figures, for programs")
    parser.add_argument(
        "--page", type=output_file, metavar="FILE", help="write the page that is printed at the end"
    )
    return parser


def _above_zero(text: str) -> float:
    """Return a number of seconds; in no time nothing would be checked."""
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < math.inf:
            return seconds
    raise ArgumentTypeError(f"expected more than 0, found {text!r}")
