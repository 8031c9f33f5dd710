"""The command ``foldbatch inspect``: a model, its parameters, and how an example of it runs."""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foldbatch.commands.options import add, count
from foldbatch.errors import FoldbatchError
from foldbatch.program.compiling import compile
from foldbatch.recipes.building import build_model
from foldbatch.recipes.configuration import read_configuration, to_toml
from foldbatch.recipes.data import read_dataset, read_labelled
from foldbatch.recipes.fitting import load_model
from foldbatch.system.files import output_file


def main(arguments: Sequence[str], prog: str) -> int:
    """Print what there is to know of a model; return the exit status."""
    what = "Print a model's options other than defaults, its block, parameters, and how examples run."
    parser = ArgumentParser(prog=prog, description=what)
    what = "a model.safetensors, the folder of a run, or a CONFIG.toml of a model to be trained"
    add(parser, "model", metavar="MODEL|CONFIG.toml", help=what)
    what = "to run: examples of its format, or the CONFIG.toml that names the test part"
    parser.add_argument("data", type=Path, nargs="?", metavar="DATA", help=what)
    what = "how many examples run together (default 1)"
    parser.add_argument("--batch-size", type=count, default=1, metavar="N", help=what)
    add(parser, "--backend", "--trust")
    what = "run them three times more and write what ran when: a picture as .svg, else a trace for Perfetto"
    parser.add_argument("--timeline", type=output_file, metavar="FILE", help=what)
    options = parser.parse_intermixed_args(arguments)
    examples: list[Any] | None = None
    if options.model.suffix == ".toml":
        configuration = read_configuration(options.model, {})
        dataset = read_dataset(configuration)
        examples = dataset.test or dataset.train
        program = compile(build_model(configuration, dataset), options.backend)
    else:
        program, notes, configuration = load_model(options.model, options.backend, options.trust)
    print(to_toml(configuration, changed=True))
    print(f"{program!r}\n{program.params!r}\n")
    try:
        if examples is None:
            examples = read_labelled(options.data, configuration, notes["classes"])
    except (FoldbatchError, OSError) as error:  # the model may be all that there is on this machine
        if options.timeline is not None or options.data is not None:
            raise  # nothing else makes the file
        print(f"no examples to run: {error}")
        return 0
    examples = examples[: options.batch_size]
    print(program.describe(examples))
    if options.timeline is not None:
        timeline = program.profile(examples)
        print(f"\n{timeline}")
        write = timeline.plot if options.timeline.suffix.lower() == ".svg" else timeline.save
        write(options.timeline)
    return 0
