"""Each recipe's model gives the same by both doors, and as plain Python does over the same objects."""

from pathlib import Path

import numpy as np
import pytest

import foldbatch as fb
from benchmarks import guests
from foldbatch.trees.given import rows_of
from tests.backends import LLVM

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "guests"
MODELS = ("nodes", "graphs", "orders")
# warnings of libraries about others that they use
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in MODELS)
TREES = "ast_functions conllu_sentences libcst_modules lxml_pages nltk_trees soup_pages spacy_sentences tree_sitter_code".split()
GRAPHS = ["networkx_graphs", "pyg_graphs", "rdkit_molecules"]
ORDERS = [name for name in NAMES if name.endswith("_orders")]
engines = pytest.mark.parametrize("backend", ("numpy", *LLVM))


def close(actual, expected):
    np.testing.assert_allclose(np.array(list(actual)), np.array(expected), rtol=1e-5, atol=1e-6)


def programs(doors, examples, backend):
    """Return a program of each door, with the same parameters."""
    walked, built = fb.compile(doors.walk, backend), fb.compile(doors.block, backend)
    walked.run(examples)  # which brings the parameters
    built.params = {name: np.array(walked.params[name]) for name in built.params}
    return walked, built, {name: np.array(value) for name, value in walked.params.items()}


def layer(params, name, x):
    return np.tanh(x @ params[f"{name}.weight"] + params[f"{name}.bias"])


def test_every_recipe_is_tested():
    assert sorted([*TREES, *GRAPHS, *ORDERS, "tokenizers_texts", "transformers_trees"]) == NAMES


@engines
@pytest.mark.parametrize("name", TREES)
def test_trees(name, backend, recipe):
    module = recipe(name)
    walked, built, params = programs(module.doors, module.EXAMPLES, backend)

    def plain(node):
        below = sum((plain(child) for child in module.children(node)), np.zeros(8, "float32"))
        return layer(params, "joined", params["labels.weight"][module.label(node)] + below)

    expected = [plain(root) for root in module.EXAMPLES]
    close(walked.run(module.EXAMPLES), expected)
    close(built.run(module.EXAMPLES), expected)
    close(walked.run(walked.prepare(module.EXAMPLES)), expected)
    assert all(type(tree) is fb.trees.Tree for tree in module.trees)


@engines
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name, backend, recipe):
    module = recipe(name)
    walked, built, params = programs(module.doors, module.EXAMPLES, backend)

    def begin(graph):
        return [params["kinds.weight"][kind] for kind in module.kinds(graph)]

    def plain(graph):
        states, around = begin(graph), module.neighbours(graph)
        for _ in range(2):
            sums = [sum((states[i] for i in places), np.zeros(8, "float32")) for places in around]
            states = [layer(params, "changed", state + x) for state, x in zip(states, sums, strict=True)]
        return sum(states)

    close(walked.run(module.EXAMPLES), [plain(graph) for graph in module.EXAMPLES])
    close(built.run(module.EXAMPLES), [sum(begin(graph)) for graph in module.EXAMPLES])


@engines
@pytest.mark.parametrize("name", ORDERS)
def test_records_and_tables(name, backend, recipe):
    module = recipe(name)
    walked, built, params = programs(module.doors, module.EXAMPLES, backend)
    names = recipe("orders").NAMES

    def plain(row):
        items = [params["names.weight"][names[item["name"]]] * item["price"] for item in row["items"]]
        return layer(params, "joined", sum(items, np.zeros(8, "float32"))) * row["paid"]

    expected = [plain(row) for row in module.ROWS]
    also = [getattr(module, other) for other in ("LAZY", "DATA_SET", "STREAM") if hasattr(module, other)]
    for given in (module.EXAMPLES, *also):
        close(walked.run(given), expected)
        close(built.run(given), expected)


@pytest.mark.parametrize("name", ORDERS)
def test_schemas_read_records_and_rows_as_dicts(name, recipe):
    module = recipe(name)
    schema = fb.schema.infer(module.EXAMPLES)
    assert schema == fb.schema.infer(module.ROWS)
    program = fb.compile(schema.block(4), "numpy")
    assert np.array_equal(program.run(module.EXAMPLES), program.run(module.ROWS))


@engines
def test_texts(backend, recipe):
    module = recipe("tokenizers_texts")
    walked, built, params = programs(module.doors, module.EXAMPLES, backend)

    def plain(encoding):
        state = np.zeros(8, "float32")
        for word in encoding.ids:
            state = layer(params, "mixed", state + params["words.weight"][word])
        return state

    expected = [plain(encoding) for encoding in module.EXAMPLES]
    close(walked.run(module.EXAMPLES), expected)
    close(built.run(module.EXAMPLES), expected)


def test_a_tree_over_an_encoder(recipe):
    module = recipe("transformers_trees")
    torch = pytest.importorskip("torch")
    over = module.encoded(module.EXAMPLES)
    states = module.module(over)
    weight, bias = (module.module.get_parameter(f"joined.{name}") for name in ("weight", "bias"))

    def plain(part):
        return torch.tanh(sum(map(plain, part)) @ weight + bias) if isinstance(part, list) else part.detach()

    expected = torch.stack([plain(tree) for tree in over])
    assert torch.allclose(states, expected, atol=1e-5)
    states.sum().backward()
    used = [p for name, p in module.encoder.named_parameters() if "pooler" not in name]
    assert all(p.grad is not None for p in used) and any(p.grad.abs().sum() > 0 for p in used)
    walked = fb.torch.Module(module.walk)
    walked.warm(over)
    walked.load_state_dict(module.module.state_dict())
    assert torch.allclose(walked(over), states, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "transformers_trees"])
def test_what_a_node_takes_is_measured(name, recipe, monkeypatch):
    recipe(name)
    monkeypatch.setattr(guests, "WARM", 1)
    figures = guests.measured(name, 2, 1, "numpy")
    assert {"walk", "function", "block"} <= {*figures} and min(figures.values()) >= 0


@pytest.mark.parametrize("form", ["arrow", "pandas", "polars", "numpy", None])
def test_data_sets_of_hugging_face_are_rows_whatever_their_format(form, recipe):
    module = recipe("hugging_face_orders")
    for name in ("pandas", "polars"):
        pytest.importorskip(name)
    program = fb.compile(fb.schema.infer(module.ROWS).block(4), "numpy")
    data_set = module.EXAMPLES.with_format(form)
    assert np.array_equal(program.run(data_set), program.run(module.ROWS))
    if form in ("arrow", None):
        assert list(rows_of(module.STREAM.with_format(form))) == module.ROWS
        rows = rows_of(data_set)
        assert (rows[1:], rows[0], rows.taken([2, 0])) == (
            module.ROWS[1:],
            module.ROWS[0],
            module.ROWS[2::-2],
        )
        assert rows.taken([]) == [] and len(rows) == 3
    trainer = fb.train.Trainer(
        fb.compile(module.doors.block >> fb.Function(fb.ops.sum) >> fb.Loss(), "numpy"), fb.SGD(0.01)
    )
    trainer.fit(data_set, epochs=1)
