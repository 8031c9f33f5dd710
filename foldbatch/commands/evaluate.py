"""The command ``foldbatch eval``: the figures of a saved model on labelled data."""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from foldbatch.commands.options import add, number
from foldbatch.errors import ReadError
from foldbatch.recipes.building import metrics_of
from foldbatch.recipes.data import read_labelled
from foldbatch.recipes.fitting import class_figures, class_table, evaluate, load_models


def main(arguments: Sequence[str], prog: str) -> int:
    """Print figures; return the exit status: 1 where one is below what `--least` asks for."""
    parser = ArgumentParser(prog=prog, description="Print the figures of a saved model on labelled data.")
    add(parser, "model")
    what = "of the format that it was trained on, or the CONFIG.toml that names the test part"
    parser.add_argument("data", type=Path, nargs="?", metavar="DATA", help=what)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    what = "fail, with status 1, where the accuracy is below this share"
    parser.add_argument(
        "--least", type=number("a number of 0 or more", finite=False), metavar="SHARE", help=what
    )
    add(parser, "--backend", "--trust")
    options = parser.parse_intermixed_args(arguments)
    programs, notes, configuration = load_models(options.model, options.backend, options.trust)
    if options.least is not None and notes["task"] == "number":
        fix = "leave it out, and look at mse"
        raise ReadError("--least", "a model of classes", "one of numbers, without an accuracy", fix)
    examples = read_labelled(options.data, configuration, notes["classes"])
    if not examples:
        raise ReadError(str(options.data or "data.test"), "examples", "none", f"write {prog} MODEL DATA")
    task, classes = notes["task"], notes["classes"]
    metrics = metrics_of(task, [*configuration.train.metrics, *(("f1", "confusion") if classes else ())])
    figures: dict[str, Any] = {"examples": len(examples)} | evaluate(programs, examples, metrics)
    if options.json:
        more = {"classes": class_figures(figures["confusion"], classes)} if classes else {}
        print(msgspec.json.encode(figures | more).decode())
    else:
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        print(", ".join(f"{name} {value:.6g}" for name, value in numbers.items()))
        if classes:
            print(class_table(figures["confusion"], classes))
    return 1 if options.least is not None and figures.get("accuracy", 0.0) < options.least else 0
