"""Reading: from the path that a user names to examples, by the formats that ``foldbatch train`` reads."""

import csv
import gzip
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foldbatch.contest.columns import expression_field, expression_tree, label_field, typed
from foldbatch.contest.examples import Answer, Examples, examples_of
from foldbatch.errors import ReadError, UnknownNameError, install, shortened, with_nearest
from foldbatch.recipes.configuration import Data
from foldbatch.recipes.data import PARTS, read_part
from foldbatch.system.files import refuse_endless
from foldbatch.trees import formats
from foldbatch.trees.formats import FORMATS, LANGUAGES, RECORDS, TRAINABLE
from foldbatch.trees.json_text import placed_jsonlines, read_json
from foldbatch.types import describe_value

TABLES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}  # by ending; a comma may be a semicolon
ENDINGS = formats.ENDINGS | {".json": "json-list", ".csv": "csv", ".tsv": "csv", ".tab": "csv"}
PROGRAMS = {  # endings of files that have a tree each
    **{ending: name for name, spec in FORMATS.items() if spec.files for ending in spec.suffixes},
    ".js": "javascript",
    ".ts": "typescript",
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".java": "java",
    ".rs": "rust",
    ".go": "go",
    ".rb": "ruby",
    ".php": "php",
    ".sh": "bash",
    ".css": "css",
    ".lua": "lua",
}
OF_ROWS = ("csv", "json-list", *RECORDS)
FORMATS_READ = (*TRAINABLE, f"{LANGUAGES}LANGUAGE", "csv", "json-list")
WORDS_OF_TEXT = 2.0  # on average, from which on a single field of text is a sentence


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of fields, each with its place in the file."""

    rows: list[dict[str, Any]]
    places: list[str]


def read(
    data: str, *, format: str | None = None, label: str | None = None, task: Answer | None = None
) -> Examples:
    """Return the examples of a file, of a folder with a folder for each class, or of an embedded data set.

    Args:
        data: a path, or ``functions`` or ``expressions``, which need no file.
        format: a name of `foldbatch.trees.formats.FORMATS`, ``csv`` or ``json-list`` (a list of records in
            one value); by default as the ending of the path, or of the files in the folder, says.
        label: the field of labels; by default one that looks like it, which a note tells.
        task: ``class`` or ``number``; by default as the labels say.

    Raises:
        ReadError: when the data cannot be read, or are no examples of one task; with the line where there
            is one.
        UnknownNameError: when there is no such format.
        OSError: when a file cannot be opened.
    """
    path = Path(data)
    embedded = format or (data if data in FORMATS and FORMATS[data].needs_no_file else "")
    if embedded in FORMATS and FORMATS[embedded].needs_no_file and not path.exists():
        return _embedded(embedded, task)
    if not path.exists():
        raise ReadError(data, "a file or a folder", "none of this name", "check the path")
    name = format or _format_of(path)
    if name not in FORMATS_READ and not FORMATS.knows(name):
        raise UnknownNameError(
            "--format", f"one of {', '.join(FORMATS_READ)}", with_nearest(name, FORMATS_READ)
        )
    if name in OF_ROWS:
        return _of_table(_table(path, name), label, task, str(path))
    if label is not None and "label" not in FORMATS[name].options:
        actual, fix = f"--label {label}", "leave it out"
        raise ReadError(data, f"no field of labels in the format {name}", actual, fix)
    spec = FORMATS[name]
    if spec.files is not None and not path.is_dir():
        expected = f"a folder with a folder for each class, of files of the format {name}"
        raise ReadError(data, expected, "a file", "name the folder above; or give rows, as CSV with a label")
    if path.is_file():
        refuse_endless(path)
    samples = list(spec.labelled(path, label or Data().label))
    structures, targets = [sample[0] for sample in samples], [sample[1] for sample in samples]
    if spec.kind == "phrases":
        return examples_of(structures, None, data, form="phrases", task=task)
    if structures and all(target is None for target in targets):
        raise ReadError(data, f"a label for each example: {spec.label}", "none", "add the labels")
    return examples_of(structures, targets, data, form="trees", task=task)


def _embedded(name: str, task: Answer | None) -> Examples:
    """Return the examples of a data set that needs no file; its parts are joined, as they are split anew."""
    section = Data(format=name)
    samples = [sample for part in PARTS for sample in read_part(section, part)]
    structures, targets = [sample[0] for sample in samples], [sample[1] for sample in samples]
    return examples_of(structures, targets, name, form="trees", task=task)


def _format_of(path: Path) -> str:
    """Return the format that the ending of a file, or those of the files in a folder, suggests."""
    if path.is_dir():
        listed = (file for file in path.glob("*/*") if file.is_file() and file.name[0] != ".")
        counts = Counter(file.suffix.lower() for file in listed)
        endings = [ending for ending, _ in counts.most_common() if ending in PROGRAMS]
        if endings:
            name = PROGRAMS[endings[0]]
            return name if name in FORMATS else f"{LANGUAGES}{name}"
        actual = (
            f"files {shortened(f'*{ending}' for ending in counts)}" if counts else "no folders with files"
        )
        fix = "put the files of each class into a folder of its name, and add --format tree-sitter:LANGUAGE"
        raise ReadError(str(path), "folders with programs or pages", actual, fix)
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    if plain.suffix.lower() in ENDINGS:
        return ENDINGS[plain.suffix.lower()]
    beginning = _text(path, str(path))[:1000].lstrip()
    if beginning.startswith("("):
        return formats.BRACKETS
    if beginning.startswith("{"):
        return formats.JSON_LINES
    if not beginning:
        raise ReadError(str(path), "examples", "an empty file", "name a file that has some")
    fix = f"add --format, one of {', '.join(FORMATS_READ)}"
    raise ReadError(
        str(path), "a format that the ending or the first character tells", path.suffix or "none", fix
    )


def _text(path: Path, where: str) -> str:
    """Return the text of a file, plain or ``.gz``."""
    refuse_endless(path)
    try:
        opener: Any = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            return str(file.read())
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ReadError(where, "text in UTF-8", str(error), "save the file as UTF-8 text") from None


def _table(path: Path, name: str) -> Table:
    """Return the rows of a file; refuse one that has none."""
    where = str(path)
    if name == "csv":
        table = _csv(path, where)
    elif name == formats.OF_PARQUET:
        table = _parquet(where)
    elif name == "json-list":
        table = _json(path, where)
    else:
        table = _records(placed_jsonlines(path))
    if not table.rows:
        raise ReadError(where, "rows", "none", "name a file that has some")
    return table


def _records(placed: Iterator[tuple[str, object]]) -> Table:
    """Return records with their places; refuse a value that is none."""
    rows, places = [], []
    for where, value in placed:
        if not isinstance(value, dict):
            fix = 'write records, such as {"a": 1, "label": "b"}'
            raise ReadError(where, "a record", describe_value(value), fix)
        rows.append(value)
        places.append(where)
    return Table(rows, places)


def _json(path: Path, where: str) -> Table:
    """Return the records of a file whose one value is a list of them; lines of JSON are read as such."""
    refuse_endless(path)
    if not _text(path, where).lstrip().startswith("["):
        return _records(placed_jsonlines(path))
    value = read_json(path)
    return _records((f"{where}, record {number}", record) for number, record in enumerate(value, 1))


def _parquet(where: str) -> Table:
    """Return the rows of files of Parquet."""
    if not find_spec("pyarrow"):
        raise ReadError(where, "pyarrow, which reads Parquet", "none", install("arrow"))
    files = import_module("foldbatch.trees.arrow").parquet_files(where)
    rows = [row for batch in files.to_batches() for row in batch.to_pylist()]
    return Table(rows, [f"{where}, row {number}" for number in range(len(rows))])


def _csv(path: Path, where: str) -> Table:
    """Return the rows of a table of text whose first row names the columns."""
    text = _text(path, where)
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    delimiter = TABLES.get(plain.suffix.lower(), ",")
    head = text.partition("\n")[0]
    if delimiter == "," and head.count(";") > head.count(","):
        delimiter = ";"
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    cells, places = [], []
    try:
        names = next(reader, [])
        if len(set(names)) < len(names):
            raise ReadError(f"{where}:1", "columns of different names", "two of one name", "rename one")
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                expected = f"{len(names)} cells, as in the first line"
                fix = "write cells that hold the separator in double quotes"
                raise ReadError(f"{where}:{reader.line_num}", expected, str(len(row)), fix)
            cells.append(row)
            places.append(f"{where}:{reader.line_num}")
    except csv.Error as error:
        raise ReadError(f"{where}:{reader.line_num}", "a row of CSV", str(error), "mend the row") from None
    columns = [typed(column) for column in zip(*cells, strict=True)]
    return Table([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)], places)


def _of_table(table: Table, label: str | None, task: Answer | None, where: str) -> Examples:
    """Return the examples of a table: records, or trees of expressions, or sentences of its one text."""
    key, reason = label_field(table.rows, label, where)
    notes = [reason] if reason else []
    for row, place in zip(table.rows, table.places, strict=True):
        if key not in row:
            fix = "an unknown label is null; --label names another field"
            raise ReadError(place, f"a label at {key!r}", "none", fix)
    targets = [row[key] for row in table.rows]
    for target, place in zip(targets, table.places, strict=True):
        if isinstance(target, list | dict):
            fix = "name another field with --label"
            raise ReadError(place, f"a name or a number at {key!r}", describe_value(target), fix)
    records = [{name: value for name, value in row.items() if name != key} for row in table.rows]
    names = list(dict.fromkeys(name for record in records for name in record))
    if not names:
        raise ReadError(where, "fields besides the label", "none", "give the model something to read")
    columns = {name: [record.get(name) for record in records] for name in names}
    expressions = expression_field(columns)
    if expressions is not None:
        texts, powers = _with_powers(columns[expressions])
        notes.append(f"{expressions!r} is read as expressions in Python, into trees")
        notes += ["^ is read as a power, as ** is"] * powers
        ignored = [name for name in names if name != expressions]
        notes += [f"not read beside the expressions: {shortened(ignored)}"] * bool(ignored)
        for text, place in zip(texts, table.places, strict=True):
            if text is None:
                raise ReadError(place, f"an expression at {expressions!r}", "none", "fill it in")
        pairs = zip(texts, table.places, strict=True)
        trees = [expression_tree(text, place) for text, place in pairs]
        return examples_of(trees, targets, where, form="trees", task=task, notes=notes)
    if len(names) == 1 and _is_text(columns[names[0]]):
        notes.append(f"{names[0]!r} is read as sentences")
        sentences = ["" if text is None else text for text in columns[names[0]]]
        return examples_of(sentences, targets, where, form="sequences", task=task, notes=notes)
    return examples_of(records, targets, where, form="records", task=task, notes=notes)


def _with_powers(texts: list[Any]) -> tuple[list[Any], bool]:
    """Return expressions in which ^ means a power as Python writes them, and whether it did."""
    filled = [text for text in texts if text is not None]
    powers = any("^" in text for text in filled) and not any("**" in text for text in filled)
    return ([text and text.replace("^", "**") for text in texts] if powers else texts), powers


def _is_text(values: list[Any]) -> bool:
    texts = [value for value in values if value is not None]
    if not texts or not all(isinstance(text, str) for text in texts):
        return False
    return sum(len(text.split()) for text in texts) >= WORDS_OF_TEXT * len(texts)
