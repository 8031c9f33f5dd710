"""Reports, pictures, explanations and errors call cells by the user's words, and no two cells alike."""

import re
from pathlib import Path
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError, FoldbatchError, WalkError

DOCS = Path(__file__).parents[2] / "docs"
TREES = [[[[1.0], [2.0]], [3.0]], [4.0]]


def kind_of(tree: Any) -> str:
    return "node" if isinstance(tree[0], list) else "leaf"


def is_leaf(tree: Any) -> bool:
    return kind_of(tree) == "leaf"


def a_tree(key: Any, leaf: Any, node: Any, name: str = "tree") -> fb.Block:
    tree = fb.ForwardDeclaration(output_type=2, name=name)
    words = fb.Vector(1) >> fb.Linear(2)
    both = fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(2)
    tree.resolve_to(fb.OneOf(key, {leaf: words, node: both}))
    return tree()


def names_of(block: Any) -> list[str]:
    return [cell.name for cell in fb.compile(block, "numpy").model.cells]


def assert_shown(program: fb.Program, examples: list[Any], labels: list[str]) -> None:
    """Check that a report, a picture and explanations call the cells of a program by these labels."""
    report = program.describe(examples)
    assert sorted(cell.name for cell in report.cells) == sorted(labels)
    drawn = fb.views.draw_schedule(program, examples)
    for label in labels:
        assert f"\n{label}  " in str(report)
        assert f": {label}</title>" in drawn
        assert f": {label}, " in drawn
        assert [cell.name for cell in fb.explain(program, label).cells] == [label]


def test_blocks_are_called_by_the_words_of_their_cases_and_the_names_of_layers() -> None:
    program = fb.compile(a_tree(kind_of, "leaf", "node") >> fb.Linear(3, name="classify"), "numpy")
    assert_shown(program, TREES, ["tree.leaf", "tree.node", "classify"])
    with pytest.raises(
        ExampleError, match=r"^tree\.leaf Vector\(1, 'float32'\) at example 1 \[1\]: expected"
    ):
        program.run([[1.0], [[1.0], [2.0, 3.0]]])


@pytest.mark.parametrize(
    ("key", "leaf", "node", "labels"),
    [
        (is_leaf, True, False, ["tree(is_leaf=True)", "tree(is_leaf=False)"]),
        (lambda tree: is_leaf(tree), True, False, ["tree[True]", "tree[False]"]),
        (lambda tree: type(tree[0]), float, list, ["tree.float", "tree.list"]),
        (lambda tree: "." if is_leaf(tree) else "( )", ".", "( )", ["tree['.']", "tree['( )']"]),
    ],
)
def test_a_case_without_a_word_has_what_was_asked_beside_the_answer(
    key: Any, leaf: Any, node: Any, labels: list[str]
) -> None:
    assert names_of(a_tree(key, leaf, node)) == labels


def test_an_item_that_is_the_key_is_the_word_for_what_is_asked() -> None:
    cases = {number: fb.GetItem("x") >> fb.Vector(2) >> fb.Linear(2) for number in range(2)}
    assert names_of(fb.OneOf(fb.GetItem("arity"), cases)) == ["model(arity=0)", "model(arity=1)"]
    cases = {number: fb.GetItem(1) >> fb.Vector(2) >> fb.Linear(2) for number in range(2)}
    assert names_of(fb.OneOf(fb.GetItem(0), cases)) == ["model[0]", "model[1]"]


def test_equal_words_of_two_declarations_are_told_apart_by_these() -> None:
    both = fb.AllOf(a_tree(kind_of, "leaf", "node"), a_tree(kind_of, "leaf", "node", "formula"))
    assert names_of(both) == ["tree.leaf", "tree.node", "formula.leaf", "formula.node"]


def test_names_of_layers_that_the_user_has_not_given_are_no_label() -> None:
    assert names_of(fb.Vector(2) >> fb.Linear(2)) == ["model"]
    assert names_of(fb.Vector(2) >> fb.Linear(2, name="join") >> fb.Linear(2)) == ["join"]


def test_functions_are_called_by_their_names_and_by_the_keywords_that_differ() -> None:
    @fb.cell
    def leaf(number: Any) -> Any:
        return fb.ops.concat([number, number])

    @fb.cell
    def gate(a: Any, b: Any, *, op: str = "and") -> Any:
        return a - b if op == "xor" else a * b

    def walk(tree: Any) -> Any:
        if is_leaf(tree):
            return leaf(fb.tensor(tree))
        left, right = map(walk, tree)
        return gate(gate(left, right), right, op="xor")

    program = fb.compile(walk, "numpy")
    program.run(TREES)
    assert_shown(program, TREES, ["leaf", "gate", "gate(op=xor)", "tensor"])
    strange = list[Any]()

    def keep(tree: Any) -> Any:
        strange.append(gate(*map(fb.tensor, tree), op="xor"))
        return strange[-1]

    fb.compile(keep, "numpy").run([[1.0, 2.0]])
    mixed = fb.compile(lambda number: gate(strange[0], fb.tensor(number), op="xor"), "numpy")
    with pytest.raises(WalkError, match=r"^gate\(op=xor\) at example 0: expected values of the same example"):
        mixed.run([1.0])


def test_structures_tell_cells_of_one_function_apart_where_no_keyword_does() -> None:
    @fb.cell
    def gate(a: Any, b: Any, *, op: str = "and") -> Any:
        return fb.ops.sum(a) * fb.ops.sum(b)

    def walk(x: Any) -> Any:
        a, b = fb.tensor(x), fb.tensor(x[:1])
        return gate(a, b), gate(b, b), gate(a, b, op="xor")

    program = fb.compile(walk, "numpy")
    program.run([[1.0, 2.0]])
    labels = ["gate(a: float32[1])", "gate(a: float32[2])", "gate(op=xor)"]
    assert_shown(program, [[1.0, 2.0]], [*labels, "tensor(float32[1])", "tensor(float32[2])"])


def test_a_feed_that_does_not_fit_names_the_cell_and_the_argument() -> None:
    @fb.cell
    def look_up(word: "int32", *, table: str) -> Any:  # noqa: F821
        return fb.ops.gather(fb.Parameter([3, 2], name=table), word)

    with pytest.raises(FoldbatchError, match=r"^look_up\(word\) at example 0: expected"):
        fb.compile(lambda word: look_up(word, table="verbs"), "numpy").run([7])


def test_a_loaded_program_has_the_labels_of_the_saved_one(tmp_path: Path) -> None:
    leaf = fb.GetItem("x") >> fb.Vector(2) >> fb.Linear(2)
    block = fb.OneOf(fb.GetItem("kind"), {"one": leaf, "two": leaf >> fb.Linear(2)})
    program = fb.compile(block >> fb.Linear(2, name="classify"), "numpy")
    program.save(tmp_path / "model.safetensors")
    again = fb.load(tmp_path / "model.safetensors", backend="numpy")
    labels = [cell.name for cell in program.model.cells]
    assert labels == [cell.name for cell in again.model.cells] == ["model.one", "model.two", "classify"]


def test_the_picture_of_the_pages_is_what_their_code_draws() -> None:
    (code, *_) = re.findall(r"```python\n(.*?)```", (DOCS / "batching.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert (DOCS / "batch.svg").read_text().replace("\n", "") == scope["svg"].replace("\n", "")
