"""Formats of examples in files: one table, which commands, recipes, the server and the docs read.

A format yields *samples* for training: pairs of a structure (a tree, a list of words, a record) and a label,
or, where every node is labelled, a tree and None. For predictions it yields *structures*, each with a name or
None.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import has_magic
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from foldbatch.errors import ReadError, install
from foldbatch.system.files import refuse_endless
from foldbatch.trees.brackets import read_brackets, read_sst, read_tree_lines, write_brackets
from foldbatch.trees.conllu import read_conllu, read_sentences
from foldbatch.trees.json_text import placed_jsonlines, read_json_trees, read_jsonlines, write_json
from foldbatch.trees.parsers import code_tree, html_tree, is_language
from foldbatch.trees.pyast import parse_expression, python_functions, python_tree, random_expressions
from foldbatch.trees.tree import Tree, trusted_tree
from foldbatch.types import describe_value

Sample = tuple[Any, Any]
Named = tuple[str | None, Any]
SENTIMENTS = ("very negative", "negative", "neutral", "positive", "very positive")
NEGATIVE_OR_POSITIVE = {0: 0, 1: 0, 2: -1, 3: 1, 4: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How examples of one format are read and written."""

    example: str  # what an example is, for people
    label: str = ""  # where its label is, for people
    # of structures. "phrases": trees with words at leaves and classes at nodes; "trees": any trees, with a
    # label each; "records": values of JSON, with a label each.
    kind: Literal["phrases", "trees", "records"] = "trees"
    # of files of trees that are taken to be of this format; those of all others hold brackets
    suffixes: tuple[str, ...] = ()
    # yields the trees of a file; None where files are no list of trees
    read: Callable[[Path], Iterable[Tree]] | None = None
    # returns a tree as a line; None where trees are not written so
    write: Callable[[Tree], str] | None = None
    # yields the samples of a file or folder, given the key of labels; by default what `read` does
    samples: Callable[[Any, str], Iterable[Sample]] | None = None
    # returns the files of a folder, where each is one example
    files: Callable[[Path], Sequence[Path]] | None = None
    # returns the samples of each part of a data set that needs no files
    embedded: Callable[[], Mapping[str, Iterable[Sample]]] | None = None
    # yields what lines of text without labels hold, given what errors call the text; None where models are
    # not trained on the format
    structures: Callable[[Iterable[str], str], Iterable[Named]] | None = None
    ending: str = ".txt"  # of the names of a data set's parts, such as train.txt
    classes: tuple[str, ...] = ()  # names of the classes, where they are known ahead
    separator: str = "\n"  # what stands between the examples of a text; none where a text is one piece
    sample: Any = None  # a small example, as the server takes it
    options: tuple[str, ...] = ()  # of data, that formats without them do not read
    library: str = ""  # the module of another library that reading needs
    # opens what a file, a folder or a pattern names, given the key of labels, as a table that training reads
    # row by row; None where files are text
    table: Callable[[str, str], Any] | None = None

    @property
    def needs_no_file(self) -> bool:
        """Whether its examples are no one's files."""
        return self.samples is _no_file

    def labelled(self, path: Any, key: str) -> Iterable[Sample]:
        """Yield the samples of a file or folder, or of the lines of a file."""
        if self.samples is not None:
            return self.samples(path, key)
        assert self.read is not None
        return ((tree, None) for tree in self.read(path))


def _sst_binary(path: Path) -> Iterator[Tree]:
    """Yield trees of two classes; neutral nodes are not labelled, sentences that are neutral left out."""
    for tree in read_sst(path):
        if tree.label != SENTIMENTS.index("neutral"):
            labels = [NEGATIVE_OR_POSITIVE[label] for label in tree.labels]  # type: ignore[index]
            yield trusted_tree(tree.parents, labels, tree.tokens)


def _bracket_lines(lines: Iterable[str], where: str, *, unescape: bool = False) -> Iterator[Named]:
    return ((None, structure) for structure in read_tree_lines(lines, where, unescape=unescape))


Parse = Callable[[str | bytes, str], Tree]  # a text, and what errors call it, become a tree


def _of_files(parse: Parse, pattern: str, **fields: Any) -> Format:
    """Return the format of files of one tree each, such as programs; a file's label is its folder's name.

    Args:
        parse: makes the tree of a file.
        pattern: of the files' names.
        fields: further ones of the format.
    """

    def files(path: Path) -> Sequence[Path]:
        named = (file for file in path.glob(f"*/{pattern}") if not file.is_dir())
        return sorted(file for file in named if "." not in (file.name[0], file.parent.name[0]))

    def tree_of(file: Path) -> Tree:
        refuse_endless(file)
        return parse(file.read_bytes(), str(file))

    def samples(path: Path, key: str) -> Iterator[Sample]:
        """Yield the tree of each file in the subfolders of a path, with its subfolder as label."""
        listed = files(path)
        if not listed:
            fix = "put the files of each class into a folder that is called like the class"
            raise ReadError(str(path), f"files CLASS/{pattern}", "none", fix)
        for file in listed:
            yield tree_of(file), file.parent.name

    return Format(
        example=f"a file `CLASS/{pattern}`",
        label="the name of its folder",
        read=lambda path: [tree_of(path)],
        samples=samples,
        files=files,
        structures=lambda lines, where: [(where, parse("".join(lines), where))],
        ending="",
        separator="",
        **fields,
    )


def _no_file(path: Path, key: str) -> Iterator[Sample]:
    fix = "leave DATA out: its own test part is evaluated"
    raise ReadError(str(path), "no file for an embedded data set", "one", fix)


def _expression_lines(lines: Iterable[str], where: str) -> Iterator[Named]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield line.strip(), parse_expression(line, f"{where}:{number}")


def _conllu_samples(path: Path, key: str) -> Iterator[Sample]:
    return ((sentence.tree(roots="join"), sentence.notes().get(key)) for sentence in read_sentences(path))


def _conllu_lines(lines: Iterable[str], where: str) -> Iterator[Named]:
    sentences = read_sentences(lines)
    return ((sentence.notes().get("sent_id"), sentence.tree(roots="join")) for sentence in sentences)


def _record_lines(lines: Iterable[str], _: str) -> Iterator[tuple[None, object]]:
    """Yield the record of each line of JSON, which has no name."""
    return ((None, record) for record in read_jsonlines(lines))


def _record_samples(path: Any, key: str) -> Iterator[Sample]:
    """Yield the records of a file of JSON lines without their label, and the label at a key."""
    for where, record in placed_jsonlines(path):
        if not isinstance(record, dict) or key not in record:
            expected = f"an object with {key!r} on each line"
            fix = "set data.label to the key of the label; an unknown label is null"
            raise ReadError(where, expected, describe_value(record), fix)
        yield {name: value for name, value in record.items() if name != key}, record[key]


def _table(path: str, key: str) -> object:
    """Return files of Parquet as a data set of Arrow, which has a column of labels."""
    arrow = _arrow(path)
    files = arrow.parquet_files(path)
    arrow.check_column(files, path, key)
    return files


def _table_samples(path: Path, key: str) -> Iterator[Sample]:
    samples: Iterator[Sample] = _arrow(str(path)).parquet_samples(path, key)
    return samples


PARQUET = b"PAR1"  # with which a file of Parquet begins


def names_tables(name: str) -> bool:
    """Whether a name is of files of Parquet: of one that begins as such, of a folder, or a pattern.

    >>> names_tables("orders.jsonl"), names_tables("folder/*.parquet")
    (False, True)
    """
    path = Path(name)
    if path.is_file():
        with path.open("rb") as file:
            return file.read(len(PARQUET)) == PARQUET
    return path.is_dir() or (has_magic(name) and not path.exists())


def table_records(name: str) -> Iterator[tuple[dict[str, object], str]]:
    """Yield the rows of files of Parquet as records, each with its place for errors."""
    records: Iterator[tuple[dict[str, Any], str]] = _arrow(name).parquet_records(name)
    return records


def _arrow(where: str) -> Any:
    """Return the module that reads tables, which needs pyarrow."""
    if not find_spec("pyarrow"):
        raise ReadError(where, "pyarrow, which reads Parquet", "none", install("arrow"))
    return import_module("foldbatch.trees.arrow")


class Formats(dict[str, Format]):
    """The formats by name; those of tree-sitter's languages are made when they are asked for."""

    def __missing__(self, name: str) -> Format:
        if not self.knows(name):
            raise KeyError(name)
        language = name.removeprefix(LANGUAGES)
        return _of_files(
            lambda text, where: code_tree(text, language, where),
            "*",
            sample="x",
            library=f"tree_sitter_{language.replace('-', '_')}",
        )

    def knows(self, name: object) -> bool:
        """Whether a format has this name."""
        if name in self or not isinstance(name, str):
            return name in self
        return name.startswith(LANGUAGES) and is_language(name.removeprefix(LANGUAGES))


LANGUAGES = "tree-sitter:"  # begins the names of formats of programs
LANGUAGE = f"{LANGUAGES}LANGUAGE"  # how these are called in lists of formats
FORMATS: Formats = Formats(
    {
        "expressions": Format(
            example="max and min of digits, `max(3, min(7, 2))`; nothing to download",
            label="the digit that it comes to",
            samples=_no_file,
            embedded=random_expressions,
            structures=_expression_lines,
            classes=tuple("0123456789"),
            sample="max(3, min(7, 2))",
        ),
        "functions": Format(
            example="a function of Python's standard library; nothing to download",
            label="the verb of its name",
            samples=_no_file,
            structures=lambda lines, where: python_functions("".join(lines), where),
            separator="",
            sample="def total(items):\n    return sum(items)\n",
            options=("training_verbs",),
        ),
        "sst": Format(
            example="a tree in brackets, `(3 (2 a) (4 gem))`",
            label="at every node, 0 to 4",
            kind="phrases",
            read=read_sst,
            structures=_bracket_lines,
            classes=SENTIMENTS,
            sample="(2 (2 a) (3 (3 fine) (2 film)))",
        ),
        "sst-binary": Format(
            example="the same; neutral sentences are left out",
            label="negative or positive; neutral nodes have none",
            kind="phrases",
            read=_sst_binary,
            structures=_bracket_lines,
            classes=("negative", "positive"),
            sample="(2 (2 a) (3 (3 fine) (2 film)))",
        ),
        "brackets": Format(
            example="the same, with any labels",
            label="at every node",
            kind="phrases",
            read=read_brackets,
            write=lambda tree: write_brackets(tree, escape=True),
            structures=_bracket_lines,
            sample="(S (NP a) (VP film))",
        ),
        "penn": Format(
            example="a tree in brackets of one line or several; `-LRB-` is read as `(`",
            label="at every node",
            kind="phrases",
            suffixes=(".mrg",),
            read=lambda path: read_brackets(path, unescape=True),
            structures=lambda lines, where: _bracket_lines(lines, where, unescape=True),
            sample="( (NP (DT a)\n     (NX (JJ fine) (NN film))))",
            separator="\n",
        ),
        "python": _of_files(
            python_tree, "*.py", suffixes=(".py",), sample="def total(items):\n    return sum(items)\n"
        ),
        "html": _of_files(
            html_tree,
            "*.html",
            suffixes=(".html", ".htm"),
            sample="<p>a <b>fine</b> film</p>",
            library="lxml",
        ),
        "conllu": Format(
            example="the dependency tree of a sentence",
            label="the comment `# label = ...` above it",
            suffixes=(".conllu",),
            read=lambda path: read_conllu(path, roots="join"),
            samples=_conllu_samples,
            structures=_conllu_lines,
            ending=".conllu",
            separator="\n\n",
            sample="1\ta\ta\tDET\t_\t_\t2\tdet\t_\t_\n2\tfilm\tfilm\tNOUN\t_\t_\t0\troot\t_\t_\n",
            options=("label",),
        ),
        "jsonlines": Format(
            example="a record, one a line",
            label="at the key `data.label`",
            kind="records",
            samples=_record_samples,
            structures=_record_lines,
            ending=".jsonl",
            sample={"name": "ada", "born": 1815},
            options=("label", "leave_out", "weight"),
        ),
        "parquet": Format(
            example="a record, one a row, of a file, a folder, or a pattern in quotes",
            label="in the column `data.label`",
            kind="records",
            samples=_table_samples,
            structures=_record_lines,
            ending=".parquet",
            sample={"name": "ada", "born": 1815},
            options=("label", "leave_out"),
            library="pyarrow",
            table=_table,
        ),
        "json": Format(
            example="a tree on a line, as `fb.trees.write_json` writes it",
            suffixes=(".jsonl", ".json"),
            read=read_json_trees,
            write=write_json,
        ),
    }
)
TRAINABLE = tuple(name for name, format_ in FORMATS.items() if format_.structures)
# formats of data to learn from, by the ending of a file that holds all examples
ENDINGS = {
    ".conllu": "conllu",
    ".jsonl": "jsonlines",
    ".ndjson": "jsonlines",
    ".mrg": "penn",
    ".parquet": "parquet",
}
OF_PARQUET, JSON_LINES, BRACKETS = "parquet", "jsonlines", "brackets"
RECORDS = [name for name, format_ in FORMATS.items() if format_.kind == "records"]


def pattern_of_names() -> str:
    """Return a regular expression of all names that the format of a model's data can have."""
    return f"^({'|'.join([*map(re.escape, TRAINABLE), f'{LANGUAGES}[a-z0-9_-]+'])})$"


class Names(tuple[str, ...]):
    """Names of formats to choose from: those of languages are among them, though one stands for all.

    >>> "tree-sitter:rust" in Names(["html"]), "rust" in Names(["html"]), [*Names(["html"])]
    (True, False, ['html', 'tree-sitter:LANGUAGE'])
    """

    __slots__ = ()

    def __new__(cls, names: Iterable[str]) -> Self:
        """Return some names, and one for those of all languages."""
        return super().__new__(cls, (*names, LANGUAGE))

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (name not in FORMATS and FORMATS.knows(name))


def structures_of(name: str) -> Callable[[Iterable[str], str], Iterable[Named]]:
    """Return the function that reads examples without labels of a format that models are trained on."""
    structures = FORMATS[name].structures
    assert structures is not None
    return structures


def format_of(path: Path) -> str:
    """Return the name of the format that a file of trees has by its name; ``.gz`` is passed over.

    >>> format_of(Path("a.conllu.gz")), format_of(Path("a.txt"))
    ('conllu', 'brackets')
    """
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix
    return next((name for name, format_ in FORMATS.items() if suffix in format_.suffixes), "brackets")
