"""An op's properties stand in its paragraph: other modules name several ops in tables of texts and rules alone."""

import ast
from pathlib import Path

import numpy as np
import pytest

import foldbatch
from foldbatch.operators import FUNCTIONS, PLAIN_OPERANDS
from foldbatch.static.op import OPS, Sample

pytestmark = pytest.mark.slow

ROOT = Path(foldbatch.__file__).parents[1]
PACKAGE = ROOT / "foldbatch"
ROOMS = ("blocks", "engines", "exporting", "functions", "loops", "model", "program", "static", "torch")
PARAGRAPHS = "static/ops/"
# Definitions that name several ops, by module: with each name goes a text in a language, the code that writes it,
# or a rewriting. A property of ops, which is none of these, is a field of `Op`, and one of their functions stands
# in a decorator.
TABLES = {
    *("kernels.PIECES", "kernels.ALONE", "kernels.ON_ALL_ROWS"),  # CUDA's
    *("list_products.BY_INDEX", "list_products.text", "op_code.ENCODERS"),  # LLVM's
    *("spelling._UFUNCS", "spelling._FUNCTIONS", "spelling._TEXTS", "spelling.SPELLINGS"),  # NumPy's
    "spelling.OVERWRITES",
    *("operators.BY_NAME", "operators.TRANSLATIONS", "operators.REFUSED"),  # ONNX's
    "simplify.RULES",
}
# Their names are of no ops, but of functions of C and of Python, and of activations.
NO_OPS = {
    *("kernel_text._NAMES", "loop_texts.VECTORISED", "translation.BUILT_IN", "vector_functions.SCOPE"),
    *("paths.LISTED", "pending._READ", "layer.Activation"),
}


def listed(node: ast.AST) -> list[str]:
    """Return the texts that a literal lists: as elements, as keys, or as words with one space between them."""
    match node:
        case ast.Set() | ast.Tuple() | ast.List():
            parts: list[ast.expr] = node.elts
        case ast.Dict():
            parts = [key for key in node.keys if key is not None]
        case ast.Constant(value=str() as text) if " " in text:
            return text.split(" ")
        case _:
            return []
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def name_of(statement: ast.stmt) -> str:
    """Return the name that a statement of a module defines or changes."""
    match statement:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return ast.unparse(target)
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
    return ast.unparse(statement)


def naming_several(text: str) -> set[str]:
    """Return the definitions of a module's text that have a literal with the names of several ops.

    Prose is none: of a text with spaces, all words are names.
    """
    known = OPS.keys() | FUNCTIONS.keys()
    return {
        name_of(statement)
        for statement in ast.parse(text).body
        for node in ast.walk(statement)
        for names in [listed(node)]
        if len(known & {*names}) > 1
        if not isinstance(node, ast.Constant) or len(known & {*names}) * 2 > len(names)
    }


def test_no_module_lists_ops_but_tables_of_texts() -> None:
    """Also none of these has gone."""
    found = set[str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if file.startswith(ROOMS) and not file.startswith(PARAGRAPHS):
            found |= {f"{path.stem}.{name}" for name in naming_several(path.read_text(encoding="utf-8"))}
    assert found == TABLES | NO_OPS


@pytest.mark.parametrize(
    "text",
    [
        'VIEWS = frozenset({"reshape", "slice"})',
        'def f(node):\n    return node.op.name in ("cast", "reshape")',
        'tables = {"gather": 0, "linear_by": 1}',
        'DRAWN = "random order".split()',
        'DATA = ["clip", "greater"]',
    ],
)
def test_a_list_of_ops_is_seen(text: str) -> None:
    assert naming_several(text)


# -- properties hold of what ops compute


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.keeps_values])
def test_an_op_that_keeps_values_has_all_of_its_operand_and_no_others(name: str) -> None:
    for sample in OPS[name].samples:
        (type_,) = sample.types
        x = np.arange(type_.size, dtype="int32").reshape(type_.shape)
        attrs = sample.attrs | ({"dtype": "int64"} if "dtype" in sample.attrs else {})
        assert {*np.ravel(OPS[name].evaluate(attrs, x)).tolist()} == {*range(type_.size)}


@pytest.mark.parametrize(
    ("name", "sample"),
    # `batch` repeats rows, of which an instance sees one
    [(op.name, sample) for op in OPS.values() if op.view and op.name != "batch" for sample in op.samples],
)
def test_a_view_has_elements_in_the_order_that_it_says(name: str, sample: Sample) -> None:
    (type_,) = sample.types
    x = np.arange(type_.size).reshape(type_.shape)
    elements = np.ravel(OPS[name].evaluate(sample.attrs, x)).tolist()
    assert (elements == sorted({*elements})) is (OPS[name].view == "in order")
    assert (len({*elements}) < len(elements)) is (OPS[name].view == "repeated")


def test_an_op_on_sequences_has_an_operand_or_a_result_along_one() -> None:
    for op in OPS.values():
        ragged = any(axis.rank == 2 for sample in op.samples for axis in sample.axes)
        ragged = ragged or any("axis" in sample.attrs and op.axis is not None for sample in op.samples)
        assert bool(op.sequence) is (ragged and op.name != "batch"), op.name
        assert op.sequence == "bounds" or not op.whole, op.name


def test_a_table_is_an_operand_in_which_ids_are_bounded_by_the_rows() -> None:
    for op in OPS.values():
        if op.table is not None:
            assert op.bound is not None
            for sample in op.samples:
                _, size = op.bound(sample.types, sample.attrs)
                assert size == sample.types[op.table].shape[0]


def test_plain_operands_are_of_functions_that_there_are() -> None:
    assert PLAIN_OPERANDS.keys() <= FUNCTIONS.keys()


# -- the count of files that CONTRIBUTING tells

SPELLED = "foldbatch/engines/numpy/spelling.py"
TRANSLATED = "foldbatch/exporting/operators.py"
FOR_USERS = "foldbatch/static/ops/functions.py"


def naming(op: str) -> set[str]:
    """Return the files of the package that name an op: as a text, or as a function, with or without ``_``."""
    files = set[str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str() as value):
                    named = value == op
                case ast.FunctionDef(name=name):
                    named = name.removeprefix("_") == op and path.parent.name in ("ops", "exporting")
                case _:
                    named = False
            if named:
                files.add(path.relative_to(ROOT).as_posix())
    return files


@pytest.mark.parametrize(
    ("op", "paragraph"),
    [("floor_divide", "elementwise"), ("segment_log_softmax", "reduce"), ("segment_logsumexp", "reduce")],
)
def test_an_op_is_named_in_the_four_files_that_contributing_tells(op: str, paragraph: str) -> None:
    """The operator ``//`` has its name in one more."""
    operators = {"foldbatch/operators.py"} if op == "floor_divide" else set[str]()
    assert naming(op) == {f"foldbatch/static/ops/{paragraph}.py", FOR_USERS, SPELLED, TRANSLATED} | operators
    steps = (
        (ROOT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .partition("## Add an op")[2]
        .partition("\n## ")[0]
    )
    assert "Four files" in steps
    assert all(file in steps for file in (FOR_USERS, SPELLED, TRANSLATED, "foldbatch/static/ops/"))


def test_an_op_of_copies_is_named_in_no_file_of_an_engine() -> None:
    assert not any(file.startswith("foldbatch/engines") for file in naming("flip"))
