"""Commands on a saved model: figures on labelled data, predictions, a description, an ONNX file."""

import gzip
import itertools
import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import msgspec

from foldbatch.commands.options import add, count, number
from foldbatch.errors import (
    BackendError,
    ExampleError,
    ExamplePlace,
    FoldbatchError,
    ReadError,
    UnlikeSamplesWarning,
    counted,
    install,
    shortened,
    told_of,
)
from foldbatch.program.compiling import compile
from foldbatch.program.predicting import predictions, spelled, unlabelled, with_text_keys
from foldbatch.program.program import Program
from foldbatch.recipes.building import build_model, metrics_of
from foldbatch.recipes.configuration import Configuration, Data, check_arity, read_configuration, to_toml
from foldbatch.recipes.data import read_dataset, read_labelled, unlike
from foldbatch.recipes.fitting import (
    SCRIPTED,
    baselines,
    beside,
    class_figures,
    class_table,
    drawing,
    evaluate,
    load_models,
)
from foldbatch.recipes.plotting import check_plots, write_plots
from foldbatch.schema import Schema
from foldbatch.system.files import output_file, refuse_endless, write_whole
from foldbatch.trees.formats import FORMATS, names_tables, structures_of, table_records
from foldbatch.trees.text import CountedLines
from foldbatch.types import BackendName
from foldbatch.views import draw_attribution


def print_figures(arguments: Sequence[str], prog: str) -> int:
    """Print figures; return the exit status: 1 where one is below what `--least` asks for."""
    parser = ArgumentParser(prog=prog, description="Print the figures of a saved model on labelled data.")
    add(parser, "model")
    help_text = "of the format that it was trained on, or the CONFIG.toml that names the test part"
    parser.add_argument("data", type=Path, nargs="?", metavar="DATA", help=help_text)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    help_text = "fail, with status 1, where the accuracy is below this share"
    parser.add_argument(
        "--least", type=number("a number of 0 or more", finite=False), metavar="SHARE", help=help_text
    )
    help_text = (
        "draw the confusion, the calibration and the errors of trees, or of numbers; and how training went"
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help=help_text)
    add(parser, "--backend", "--trust")
    options = parser.parse_intermixed_args(arguments)
    if options.plots is not None:
        check_plots(options.plots)
    programs, notes, configuration = load_models(options.model, options.backend, options.trust)
    if options.least is not None and notes["task"] == "number":
        fix = "leave it out, and look at mse"
        raise ReadError("--least", "a model of classes", "one of numbers, without an accuracy", fix)
    examples = read_labelled(options.data, configuration, notes["classes"])
    if not examples:
        raise ReadError(str(options.data or "data.test"), "examples", "none", f"write {prog} MODEL DATA")
    task, classes = notes["task"], notes["classes"]
    drawn = ["calibration_error"] if options.plots is not None else []
    of_classes = ["f1", "confusion", *drawn] if classes else []
    metrics = metrics_of(task, [*configuration.train.metrics, *of_classes])
    figures: dict[str, Any] = {"examples": len(examples)} | evaluate(programs, examples, metrics)
    baseline_of = baselines(examples, metrics)
    if options.json:
        additional: dict[str, Any] = {
            "baselines": {name: baseline.figure for name, baseline in baseline_of.items()}
        }
        if classes:
            additional["classes"] = class_figures(figures["confusion"], [*map(spelled, classes)])
        print(msgspec.json.encode(figures | additional).decode())
    else:
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        shown = (
            f"{name} {value:.6g}{beside(baseline_of.get(name), '.6g')}" for name, value in numbers.items()
        )
        print(", ".join(shown))
        if classes:
            print(class_table(figures["confusion"], [*map(spelled, classes)]))
    if options.plots is not None:
        for path in write_plots(options.plots, options.model, programs, notes, examples, metrics):
            print(f"plot: {path}", file=sys.stderr if options.json else sys.stdout)
    return 1 if options.least is not None and figures.get("accuracy", 0.0) < options.least else 0


EXAMINED = 1000  # rows of a stream that are run
STANDARD_INPUT = "-"


def predict(arguments: Sequence[str], prog: str) -> int:
    """Print a line of JSON for each example; return the exit status."""
    help_text = (
        "Print a line of JSON for each example of files or of the standard input: label and probabilities."
    )
    parser = ArgumentParser(prog=prog, description=help_text)
    add(parser, "model")
    help_text = (
        "in the format that it was trained on, labels or not; records also in files of Parquet, a folder of "
        "these, or a pattern in quotes; by default -, the standard input"
    )
    parser.add_argument("files", nargs="*", default=[STANDARD_INPUT], metavar="FILE", help=help_text)
    parser.add_argument("--nodes", action="store_true", help="add the label of every node")
    parser.add_argument("--draw", action="store_true", help="draw trees instead of JSON")
    help_text = "add what decided the score of the label, or the number: each datum's path and its part of it"
    parser.add_argument("--explain", action="store_true", help=help_text)
    help_text = "write a picture of each example, its data in the colours of their parts, to this folder"
    parser.add_argument("--pictures", type=Path, metavar="DIR", help=help_text)
    help_text = "refuse a record that has a field which training had not, or none that it had"
    parser.add_argument("--strict", action="store_true", help=help_text)
    add(parser, "--backend", "--trust")
    options = parser.parse_intermixed_args(arguments)
    programs, notes, configuration = load_models(options.model, options.backend, options.trust, scripted=True)
    schema = Schema.from_plain(notes["schema"]) if "schema" in notes else None
    if options.strict and schema is None:
        fix = "leave it out"
        raise ReadError("--strict", "a model of records that foldbatch train wrote", "another one", fix)
    explained = _explaining(options, programs, notes)
    if schema is not None:  # whose records are compared here, one by one
        warnings.simplefilter("ignore", UnlikeSamplesWarning)
    counts = Counter[str]()  # of records unlike those of training
    fields = dict[str, None]()
    kinds = dict[str, None]()
    nodes = options.nodes or (options.draw and notes["task"] == "nodes")
    for name in options.files:
        waiting: deque[Placed] = deque()  # what is read and not yet told
        read = _structures(name, configuration)
        if schema is not None:
            odd = counts, fields, kinds
            read = _looked_at(read, schema, odd, configuration.data, strict=options.strict)
        structures = _remembered(read, waiting)
        for prediction in _with_places(predictions(programs, notes, structures, nodes=nodes), waiting):
            label, structure, _ = waiting.popleft()
            explanation = explained(structure)
            if options.draw:
                print(*([label] if label else []), drawing(structure, prediction), sep="\n")
            else:
                named = {"name": label} if label else {}
                print(msgspec.json.encode(named | with_text_keys(prediction) | explanation).decode())
    if counts:
        ending = f"; in {counts['empty']} nothing was known" if counts["empty"] else ""
        unknown = f" (fields that training had not: {shortened(fields)})" if fields else ""
        unread = f" (kinds of values that training had not: {shortened(kinds)})" if kinds else ""
        message = f"{counted(counts['odd'], 'record')} unlike those of training{unknown}{unread}{ending}"
        print(f"warning: {message}; --strict refuses them", file=sys.stderr)
    return 0


def _explaining(
    options: Namespace, programs: Sequence[Program], notes: dict[str, Any]
) -> Callable[[Any], dict[str, Any]]:
    """Return a function from a structure to what ``--explain`` adds to its prediction.

    It writes the structure's picture where ``--pictures`` asks for it.
    """
    if not options.explain and options.pictures is None:
        return lambda _: {}
    program = _single(options.model, programs)
    if options.explain and options.draw:
        raise ReadError("--explain", "JSON", "--draw", "leave --draw out; --pictures DIR draws explanations")
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    numbers = itertools.count()

    def explained(structure: Any) -> dict[str, Any]:
        attribution = program.attribute(unlabelled(structure, notes))
        if options.pictures is not None:
            draw_attribution(attribution, options.pictures / f"{next(numbers)}.svg")
        return {"explanation": attribution.plain()} if options.explain else {}

    return explained


Placed = tuple[str | None, Any, str]  # a structure with its name, and where its text begins
Odd = tuple[Counter[str], dict[str, None], dict[str, None]]  # counts, fields and kinds of odd records


def _looked_at(
    placed: Iterable[Placed], schema: Schema, odd: Odd, data: Data, *, strict: bool
) -> Iterator[Placed]:
    """Yield records; count those that are unlike training's, and note fields and kinds that it had not."""
    counts, fields, kinds = odd
    for label, record, place in placed:
        difference, compared = unlike(schema, record, data)
        if difference and strict:
            fix = "look at names and values, or leave --strict out"
            raise ReadError(place, "fields and kinds of values that training had", difference, fix)
        if difference:
            counts.update(odd=1, empty=int(not compared.read))
            fields |= dict.fromkeys(compared.fields)
            kinds |= dict.fromkeys(f"{path} ({kind})" for path, kind in compared.kinds)
        yield label, record, place


def _remembered(placed: Iterable[Placed], waiting: deque[Placed]) -> Iterator[Any]:
    for entry in placed:
        waiting.append(entry)
        yield entry[1]


def _with_places(predicted: Iterable[dict[str, Any]], waiting: deque[Placed]) -> Iterator[dict[str, Any]]:
    """Yield predictions; let an error of an example name its file and line instead of its number."""
    count = 0
    try:
        for prediction in predicted:
            yield prediction
            count += 1
    except Exception as raised:
        error = told_of(raised)
        where = error.where if error else None
        if error is None or not isinstance(where, ExamplePlace):
            raise
        number = where.example - count
        if not 0 <= number < len(waiting):
            raise
        text = f"{waiting[number][2]} {where.without_example}"
        raise ExampleError(text, error.expected, error.found, error.fix) from raised


def _structures(name: str, configuration: Configuration) -> Iterator[Placed]:
    """Yield the examples of a file or of standard input, each with its name and its place for errors.

    Of a model of records, a file of Parquet, a folder of such files or a pattern will do as well.
    """
    format_ = configuration.data.format
    if FORMATS[format_].kind == "records" and name != STANDARD_INPUT and names_tables(name):
        for record, place in table_records(name):
            check_arity(configuration, record, place)
            yield None, record, place
        return
    read = structures_of(format_)
    where = "standard input" if name == STANDARD_INPUT else name
    try:
        with _opened(name) as text:
            lines = CountedLines(text, where)
            for label, structure in read(lines, where):
                place = lines.place() if FORMATS[format_].separator else f"{where} {label or ''}".rstrip()
                check_arity(configuration, structure, place)
                yield label, structure, place
    except UnicodeDecodeError as error:
        actual = f"the byte 0x{error.object[error.start]:02x} ({error.reason})"
        raise ReadError(where, "text in UTF-8", actual, "save it as UTF-8") from None
    except EOFError as error:
        raise ReadError(where, "a whole file", str(error), "fetch it again") from None


def _opened(name: str) -> AbstractContextManager[Iterable[str]]:
    """Return the lines of a file or of standard input, as a context that closes the file."""
    if name != STANDARD_INPUT:
        refuse_endless(name)
        text: IO[str] = (gzip.open if name.endswith(".gz") else open)(name, "rt", encoding="utf-8-sig")
        return text
    if sys.stdin is None:  # it was closed
        raise ReadError("standard input", "lines of text", "nothing", "name a file, or pipe text into it")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    return nullcontext(sys.stdin)


def inspect(arguments: Sequence[str], prog: str) -> int:
    """Print a model's options, block and parameters, and how examples run; return the exit status."""
    help_text = "Print a model's options other than defaults, its block, parameters, and how examples run."
    parser = ArgumentParser(prog=prog, description=help_text)
    help_text = "a model.safetensors, the folder of a run, or a CONFIG.toml of a model to be trained"
    add(parser, "model", metavar="MODEL|CONFIG.toml", help=help_text)
    help_text = "to run: examples of its format, or the CONFIG.toml that names the test part"
    parser.add_argument("data", type=Path, nargs="?", metavar="DATA", help=help_text)
    help_text = "how many examples run together (default 1)"
    parser.add_argument("--batch-size", type=count, default=1, metavar="N", help=help_text)
    add(parser, "--backend", "--trust")
    help_text = "run them three times more and write what ran when, a trace for Perfetto"
    parser.add_argument("--timeline", type=output_file, metavar="FILE", help=help_text)
    options = parser.parse_intermixed_args(arguments)
    examples: list[Any] | None = None
    if options.model.suffix == ".toml":
        configuration = read_configuration(options.model, {})
        dataset = read_dataset(configuration)
        examples = dataset.test or dataset.members(EXAMINED)
        program = compile(build_model(configuration, dataset), options.backend)
    else:
        program, notes, configuration = _single_model(options.model, options.backend, options.trust)
    if configuration is not SCRIPTED:
        print(to_toml(configuration, changed=True))
    print(f"{program!r}\n{program.params!r}\n")
    try:
        if examples is None:
            examples = _examples(options.data, configuration, notes)
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
        timeline.save(options.timeline)
    return 0


TEST_PART = Path("the test part")  # what --check alone stands for
TOLERANCE = 1e-5  # above which --check fails


def export(arguments: Sequence[str], prog: str) -> int:
    """Write an ONNX file; return the exit status: 1 where `--check` finds too large a difference."""
    help_text = "Write a saved model as one ONNX graph for examples of every shape."
    parser = ArgumentParser(prog=prog, description=help_text)
    add(parser, "model", help="a model.safetensors, or the folder of a run")
    parser.add_argument("file", type=Path, metavar="FILE.onnx", help="the file to write")
    help_text = "the version of ONNX's operators, from 18 to 23 (default 21)"
    parser.add_argument("--opset", type=int, metavar="N", help=help_text)
    help_text = "compare with onnxruntime, on a file or on the test part of a CONFIG.toml: fail above 1e-5"
    parser.add_argument("--check", type=Path, nargs="?", const=TEST_PART, metavar="DATA", help=help_text)
    add(parser, "--trust")
    options = parser.parse_args(arguments)
    for library in ("onnx", "onnxruntime") if options.check else ("onnx",):
        if not find_spec(library):
            raise BackendError("export", f"the library {library}", "none", install("onnx"))
    from foldbatch.exporting.exporter import OPSET, Exporter, largest_difference  # noqa: PLC0415 - it needs the library

    program, notes, configuration = _single_model(options.model, "numpy", options.trust)  # without kernels
    exporter = Exporter(program)
    metadata = _metadata(exporter, notes)
    proto = exporter.proto(metadata, OPSET if options.opset is None else options.opset)
    examples = _examples_to_check(options.check, configuration, notes) if options.check else []
    data = proto.SerializeToString()
    write_whole(options.file, data)
    tables = ", ".join(x.name for x in proto.graph.input)
    outputs = ", ".join(x.name for x in proto.graph.output)
    print(f"{options.file}: {len(data) / 1e6:.1f} MB, opset {proto.opset_import[0].version}")
    print(f"takes {tables}\nyields {outputs}")
    if not examples:
        return 0
    difference = largest_difference(program, exporter, data, examples)
    print(f"largest difference on {len(examples)} examples: {difference:.2g}")
    return 0 if difference <= TOLERANCE else 1


def _single_model(
    path: Path, backend: BackendName, trust: Sequence[str]
) -> tuple[Program, dict[str, Any], Configuration]:
    """Return one saved model, of ``foldbatch train`` or of a script, with its notes and its configuration."""
    programs, notes, configuration = load_models(path, backend, trust, scripted=True)
    return _single(path, programs), notes, configuration


def _single(path: Path, programs: Sequence[Program]) -> Program:
    """Return the program of a path; refuse several."""
    if len(programs) > 1:
        raise ReadError(str(path), "one model", f"those of {len(programs)} seeds", f"name one: {path}/seed-0")
    return programs[0]


def _examples(path: Path | None, configuration: Configuration, notes: dict[str, Any]) -> list[Any]:
    """Return examples to run: those of a file, or of the test part; a script's model reads lines of JSON."""
    if configuration is not SCRIPTED:
        return read_labelled(path, configuration, notes["classes"])
    if path is None:
        raise ReadError("DATA", "a file of examples, one a line as JSON", "none", "name one")
    return [structure for _, structure, _ in _structures(str(path), configuration)]


def _examples_to_check(path: Path, configuration: Configuration, notes: dict[str, Any]) -> list[Any]:
    examples = _examples(None if path == TEST_PART else path, configuration, notes)
    if not examples:
        raise ReadError("data.test", "examples", "none", "name a file: --check DATA")
    return examples


def _metadata(exporter: Any, notes: dict[str, Any]) -> dict[str, str]:
    """Return the metadata for a reader of examples: the task, its classes, and the words by number."""
    texts = {name: notes[name] for name in ("task", "classes") if notes.get(name) is not None}
    vocabularies = [list(words) for words in exporter.vocabularies()]
    if len(vocabularies) == 1:
        texts["vocabulary"] = vocabularies[0]
    elif vocabularies:
        texts["vocabularies"] = vocabularies
    return {name: msgspec.json.encode(value).decode() for name, value in texts.items()}
