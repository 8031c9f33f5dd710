"""The command ``foldbatch export``: a saved model as an ONNX file, and whether it computes the same."""

from argparse import ArgumentParser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from foldbatch.commands.options import add
from foldbatch.errors import BackendError, ReadError
from foldbatch.recipes.configuration import Configuration
from foldbatch.recipes.data import read_labelled
from foldbatch.recipes.fitting import load_model
from foldbatch.system.extras import install
from foldbatch.system.files import write_whole

TEST_PART = Path("the test part")  # what --check alone stands for
TOLERANCE = 1e-5  # above which --check fails


def main(arguments: Sequence[str], prog: str) -> int:
    """Write an ONNX file; return the exit status: 1 where `--check` finds too large a difference."""
    what = "Write a saved model as one ONNX graph for examples of every shape."
    parser = ArgumentParser(prog=prog, description=what)
    add(parser, "model", help="a model.safetensors, or the folder of a run")
    parser.add_argument("file", type=Path, metavar="FILE.onnx", help="the file to write")
    what = "the version of ONNX's operators, from 18 to 23 (default 21)"
    parser.add_argument("--opset", type=int, metavar="N", help=what)
    what = "compare with onnxruntime, on a file or on the test part of a CONFIG.toml: fail above 1e-5"
    parser.add_argument("--check", type=Path, nargs="?", const=TEST_PART, metavar="DATA", help=what)
    add(parser, "--trust")
    options = parser.parse_args(arguments)
    for library in ("onnx", "onnxruntime") if options.check else ("onnx",):
        if not find_spec(library):
            raise BackendError("export", f"the library {library}", "none", install("onnx"))
    from foldbatch.exporting.exporter import Exporter  # noqa: PLC0415 - it needs the library
    from foldbatch.exporting.graph import OPSET  # noqa: PLC0415

    program, notes, configuration = load_model(
        options.model, "numpy", options.trust
    )  # which needs no kernels
    exporter = Exporter(program)
    metadata = _metadata(exporter, notes)
    proto = exporter.proto(metadata, OPSET if options.opset is None else options.opset)
    examples = _examples(options.check, configuration, notes) if options.check else []
    data = proto.SerializeToString()
    write_whole(options.file, data)
    tables = ", ".join(x.name for x in proto.graph.input)
    outputs = ", ".join(x.name for x in proto.graph.output)
    print(f"{options.file}: {len(data) / 1e6:.1f} MB, opset {proto.opset_import[0].version}")
    print(f"takes {tables}\nyields {outputs}")
    if not examples:
        return 0
    from foldbatch.exporting.exporter import largest_difference  # noqa: PLC0415

    difference = largest_difference(program, exporter, data, examples)
    print(f"largest difference on {len(examples)} examples: {difference:.2g}")
    return 0 if difference <= TOLERANCE else 1


def _examples(path: Path, configuration: Configuration, notes: dict[str, Any]) -> list[Any]:
    examples = read_labelled(None if path == TEST_PART else path, configuration, notes["classes"])
    if not examples:
        raise ReadError("data.test", "examples", "none", "name a file: --check DATA")
    return examples


def _metadata(exporter: Any, notes: dict[str, Any]) -> dict[str, str]:
    """Return what a reader of examples must know: the task, its classes, and the words by number."""
    texts = {"task": notes["task"], "classes": list(notes["classes"])}
    vocabularies = [list(words) for words in exporter.vocabularies()]
    if len(vocabularies) == 1:
        texts["vocabulary"] = vocabularies[0]
    elif vocabularies:
        texts["vocabularies"] = vocabularies
    return {name: msgspec.json.encode(value).decode() for name, value in texts.items()}
