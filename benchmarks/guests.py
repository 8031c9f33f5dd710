"""Objects of other libraries, ``python -m benchmarks.guests``: microseconds of a node, by library and door.

In: examples of about thirty nodes for the models of ``examples/guests``. *function* and *block* are
``value_and_grad`` of a batch that is traced anew, *walk* Python's own visit of the same nodes, and *from_*
makes a `Tree` of them. *fields* is what the library itself takes: of a table, to make its rows; of a tree,
a visit by plain Python of the fields that *from_* reads. CPU time of one process on one thread; the best of
several turns.
"""

from __future__ import annotations

import random
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import foldbatch as fb
from benchmarks.options import add_backend, add_repeats, positive

RECIPES = Path(__file__).resolve().parents[1] / "examples" / "guests"
WARM = 9
MOST = 4.0  # microseconds of a node that training may take


def best(action: Callable[[], object], repeats: int) -> float:
    """Return the least CPU seconds of an action."""
    for _ in range(WARM):  # it compiles, and the first batches of a walk are looked through
        action()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def visited(recipe: Any, example: Any) -> int:
    """Visit an example in plain Python; return how many nodes, or fields of records, there are."""
    if hasattr(recipe, "label"):
        count, waiting = 0, [example]
        while waiting:
            node = waiting.pop()
            recipe.label(node)
            waiting.extend(recipe.children(node))
            count += 1
        return count
    if hasattr(recipe, "kinds"):
        recipe.neighbours(example)
        return len(recipe.kinds(example)) * 3  # a state before and after two rounds of messages
    if hasattr(recipe, "ids"):
        return len(recipe.ids(example))
    field: Any = getattr(recipe, "attribute", None) or recipe.key
    return 1 + sum(bool(field(item, "name")) for item in field(example, "items"))


def examples_of(name: str, recipe: Any, count: int) -> list[Any]:
    """Return examples of a library of about thirty nodes each, as its users hold them; tables as rows."""
    draw = random.Random(0)  # noqa: S311 - no secrets
    sizes = [draw.randint(20, 40) for _ in range(count)]
    code = [f"def f{size}(x, y):\n    return {' + '.join(['g(x)'] * (size // 6))}\n" for size in sizes]
    heads = [[max(n - draw.randint(1, 3), 0) for n in range(size)] for size in sizes]
    match name.partition("_")[0]:
        case "ast" | "libcst":
            parse = recipe.ast.parse if name == "ast_functions" else recipe.libcst.parse_module
            return [parse(text) for text in code]
        case "tree":
            return [recipe.Parser(recipe.PYTHON).parse(text.encode()).root_node for text in code]
        case "nltk":
            return [
                recipe.nltk.Tree.fromstring(f"(S {'(NP a (ADJ fine) film) ' * (size // 5)})")
                for size in sizes
            ]
        case "lxml":
            pages = (f"<ul>{'<li>one <b>two</b></li>' * (size // 2)}</ul>" for size in sizes)
            return [recipe.lxml.html.document_fromstring(page) for page in pages]
        case "soup":
            pages = (f"<ul>{'<li>one <b>two</b></li>' * (size // 2)}</ul>" for size in sizes)
            return [recipe.BeautifulSoup(page, "html.parser") for page in pages]
        case "spacy":
            return [
                recipe.Doc(
                    recipe.VOCABULARY, ["w"] * len(own), heads=own, deps=["ROOT"] + ["obj"] * (len(own) - 1)
                )
                for own in heads
            ]
        case "conllu":
            lines = (
                "".join(
                    f"{n + 1}\ta\ta\t_\t_\t_\t{head + bool(n)}\tobj\t_\t_\n" for n, head in enumerate(own)
                )
                for own in heads
            )
            return [sentence.to_tree() for sentence in recipe.conllu.parse("\n".join([*lines, ""]))]
        case "networkx":
            graphs = [recipe.nx.path_graph(size // 3) for size in sizes]
            for graph in graphs:
                recipe.nx.set_node_attributes(graph, 1, "kind")
            return graphs
        case "rdkit":
            return [recipe.Chem.MolFromSmiles("CCO" * (size // 9)) for size in sizes]
        case "pyg":
            return [
                recipe.Data(
                    x=recipe.torch.ones(size // 3, dtype=recipe.torch.int64),
                    edge_index=recipe.torch.tensor([range(size // 3 - 1), range(1, size // 3)]),
                )
                for size in sizes
            ]
        case "tokenizers":
            return list(recipe.tokenizer.encode_batch(["a fine film " * (size // 3) for size in sizes]))
    item = {"name": "pen", "price": 1.5}
    table = name.removesuffix("_orders")
    rows = [{"paid": True, "items": [item] * size} for size in sizes]
    if table == "pydantic":
        return [recipe.Order.model_validate(row) for row in rows]
    if table == "msgspec":
        return list(recipe.msgspec.convert(rows, list[recipe.Order]))
    if table == "dataclass":
        return [recipe.Order(True, [recipe.Item(**item)] * size) for size in sizes]  # noqa: FBT003
    if table == "protobuf":
        return [recipe.json_format.ParseDict(row, recipe.Order()) for row in rows]
    return rows


def tables_of(name: str, recipe: Any, rows: list[Any]) -> Any:
    """Return rows as a table of a library; examples of others as they are."""
    match name:
        case "pandas_orders":
            return recipe.pd.DataFrame(rows)
        case "polars_orders":
            return recipe.pl.DataFrame(rows)
        case "arrow_orders":
            return recipe.pa.Table.from_pylist(rows)
        case "duckdb_orders":
            return recipe.duckdb.connect().from_arrow(recipe.pa.Table.from_pylist(rows))
        case "hugging_face_orders":
            return recipe.Dataset.from_list(rows)
    return rows


def fields_of(name: str, given: Any) -> Any:
    """Visit by plain Python what a library holds, as it offers it: rows of a table, or fields of a tree."""
    match name:
        case "pandas_orders":
            return given.to_dict("records")
        case "polars_orders":
            return given.to_dicts()
        case "arrow_orders":
            return given.to_pylist()
        case "duckdb_orders":
            return given.to_arrow_table().to_pylist()
        case "hugging_face_orders":
            return list(given)
    reader = READERS.get(name.partition("_")[0])
    if reader is None:
        return None
    waiting = list(given)
    while waiting:
        waiting.extend(reader(waiting.pop()))
    return ()


def of_markup(node: Any) -> list[Any]:
    """Read an element of lxml; return what is below it."""
    below = list(node)
    _ = node.tag, node.text, [child.tail for child in below]
    return below


def of_libcst(node: Any) -> list[Any]:
    """Read the fields of a node of libcst; return the nodes in them."""
    below: list[Any] = []
    for name in type(node).__dataclass_fields__:
        part = getattr(node, name)
        below += part if isinstance(part, list | tuple) else [part]
    return [part for part in below if hasattr(part, "_codegen_impl")]


def of_ast(node: Any) -> list[Any]:
    """Read the fields of a node of `ast`; return the nodes in them."""
    below: list[Any] = []
    for name in node._fields:
        part = getattr(node, name, None)
        below += part if isinstance(part, list) else [part]
    return [part for part in below if hasattr(part, "_fields")]


READERS: dict[str, Callable[[Any], list[Any]]] = {"lxml": of_markup, "libcst": of_libcst, "ast": of_ast}


def measured(name: str, batch: int, repeats: int, backend: Any) -> dict[str, float]:
    """Return the microseconds of a node of a library's examples, by what is done."""
    recipe = import_module(name)
    examples = examples_of(name, recipe, batch)
    given = tables_of(name, recipe, examples)
    nodes = sum(visited(recipe, example) for example in examples)
    total = fb.Function(fb.ops.sum) >> fb.Loss()
    summed = fb.cell(lambda state: fb.loss(fb.ops.sum(state)))
    walk = recipe.doors.walk
    figures = {"walk": best(lambda: [visited(recipe, example) for example in examples], repeats)}
    for door, model in (
        ("function", lambda example: summed(walk(example))),
        ("block", recipe.doors.block >> total),
    ):
        program = fb.compile(model, backend, threads=1)
        figures[door] = best(lambda program=program: program.value_and_grad(given), repeats)  # type: ignore[misc]
    if fields_of(name, given) is not None:
        figures["fields"] = best(lambda: fields_of(name, given), repeats)
    figures = {what: seconds / nodes * 1e6 for what, seconds in figures.items()}
    if hasattr(recipe, "label"):
        size = sum(tree.size for tree in fb.trees.from_(examples))
        figures["from_"] = best(lambda: fb.trees.from_(examples), repeats) / size * 1e6
    return figures


def main() -> int:
    """Print a table; return the exit status: 1 where training takes more than `MOST` at one door."""
    parser = ArgumentParser(prog="python -m benchmarks.guests", description=__doc__)
    parser.add_argument("--batch", type=positive, default=256, help="examples of a batch (default 256)")
    parser.add_argument("names", nargs="*", help="recipes; by default all whose libraries are installed")
    add_repeats(parser, 5)
    add_backend(parser)
    options = parser.parse_args()
    sys.path.insert(0, str(RECIPES))
    names = options.names or sorted(path.stem for path in RECIPES.glob("*_*.py"))
    print(f"us a node    {'':20} {'fields':>8} {'walk':>8} {'function':>8} {'block':>8} {'from_':>8}")
    slow = []
    for name in names:
        try:
            if not hasattr(import_module(name), "doors"):
                continue
            figures = measured(name, options.batch, options.repeats, options.backend)
        except ModuleNotFoundError as error:
            print(f"{name:33} needs {error.name}")
            continue
        shown = (
            f"{figures[what]:8.2f}" if what in figures else " " * 8
            for what in ("fields", "walk", "function", "block", "from_")
        )
        print(f"{name:33} {' '.join(shown)}", flush=True)
        slow += [name] * (min(figures["function"], figures["block"]) > MOST)
    if slow:
        print(f"above {MOST} us a node at both doors: {', '.join(slow)}")
    return bool(slow)


if __name__ == "__main__":
    sys.exit(main())
