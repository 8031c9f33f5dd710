"""The command ``foldbatch inspect``: a model, its parameters, and how an example of it runs."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from foldbatch.commands.counts import count
from foldbatch.compiling import compile
from foldbatch.errors import FoldbatchError
from foldbatch.output import output_file
from foldbatch.recipes.building import build_model
from foldbatch.recipes.configuration import read_configuration, to_toml
from foldbatch.recipes.data import read_dataset
from foldbatch.recipes.saved import load_model


def main(arguments: Sequence[str], prog: str) -> int:
    """Print what there is to know of a model; return the exit status.

    Args:
        arguments: of the command.
        prog: what help and errors call it.

    Raises:
        FoldbatchError: for what the user can mend.
        OSError: when a file cannot be read.
    """
    what = "Print a model's configuration, block, parameters, and how examples run: calls, steps, memory."
    parser = ArgumentParser(prog=prog, description=what)
    what = "a model.safetensors, the folder of a run, or a CONFIG.toml of a model to be trained"
    parser.add_argument("model", type=Path, metavar="MODEL|CONFIG.toml", help=what)
    what = "how many examples run together (default 1)"
    parser.add_argument("--batch", type=count, default=1, metavar="N", help=what)
    parser.add_argument("--backend", default="auto", help="what computes (default auto)")
    what = "run them three times more and write what ran when: a picture as .svg, else a trace for Perfetto"
    parser.add_argument("--timeline", type=output_file, metavar="FILE", help=what)
    options = parser.parse_args(arguments)
    if options.model.suffix == ".toml":
        configuration = read_configuration(options.model, {})
        program = compile(build_model(configuration, read_dataset(configuration)), options.backend)
    else:
        program, _, configuration = load_model(options.model, options.backend)
    print(to_toml(configuration))
    print(f"{program}\n{program.params!r}\n")
    try:
        dataset = read_dataset(configuration)
    except (FoldbatchError, OSError) as error:  # the model may be all that there is on this machine
        if options.timeline is not None:
            raise  # nothing else makes the file
        print(f"no examples to run: {error}")
        return 0
    examples = (dataset.test or dataset.train)[: options.batch]
    print(program.describe(examples))
    if options.timeline is not None:
        timeline = program.profile(examples)
        print(f"\n{timeline}")
        write = timeline.plot if options.timeline.suffix.lower() == ".svg" else timeline.save
        write(options.timeline)
    return 0
