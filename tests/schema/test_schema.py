"""Inferring schemas of samples, and keeping them as plain data."""

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import ExampleError, ModelError
from foldbatch.schema import Schema, infer, kinds, reading
from foldbatch.schema.pooling import FAINT
from foldbatch.trees import Vocabulary


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
@settings(max_examples=20)
def test_mean_and_deviation_are_those_of_all_numbers(values):
    (kind,) = infer(values).root.kinds
    assert (kind.count, kind.minimum, kind.maximum) == (len(values), min(values), max(values))
    assert kind.mean == pytest.approx(np.mean(values), abs=1e-6)
    if np.std(values) > 1e-3:
        assert kind.deviation == pytest.approx(np.std(values), rel=1e-6)


def test_numbers_of_any_size_have_a_finite_mean_and_deviation():
    (kind,) = infer([10**400, -(10**400), 1e308, 5e-324]).root.kinds
    assert np.isfinite([kind.mean, kind.deviation]).all()
    assert infer([float("nan"), float("-inf")]).root == kinds.DataPosition(2, ())


def test_strings_are_a_category_if_they_are_few_and_come_again():
    def kind(*values):
        return infer(values, categories=2).root.kinds[0]

    assert kind("b", "a", "b", "a", "b") == kinds.Category(5, (("b", 3), ("a", 2)))
    assert kind("a", "b", "a") == kinds.Text(3, 1, 1, ("a", "b"))  # 1.5 times on average
    assert kind(*"aabbccdd", "long") == kinds.Text(9, 1, 4, ("a", "b", "c"))


def test_numbers_have_quantiles_and_a_few_whole_ones_are_codes():
    (kind,) = infer([0, 0, 0, 1, 1, 5] * 10).root.kinds
    assert (kind.edges, kind.values) == ((0.0, 1.0, 5.0), (0, 1, 5))
    (many,) = infer([*range(1000)]).root.kinds
    assert (len(many.edges), many.edges[0], many.edges[-1], many.values) == (17, 0.0, 999.0, ())
    assert np.histogram(np.arange(1000), many.edges)[0].tolist() == pytest.approx([62.5] * 16, abs=2)
    (fractions,) = infer([0.5, 0.5, 1]).root.kinds
    assert fractions.values == ()


def test_texts_that_nearly_all_spell_numbers_have_their_figures():
    (kind,) = infer([f"{i} kg" for i in range(19)] + ["unknown"]).root.kinds
    assert (kind.number.count, kind.number.mean, kind.number.whole) == (19, 9.0, False)
    (kind,) = infer(["1", "2", "b", "c"]).root.kinds
    assert kind.number is None
    texts = ["$1,200.50", "-3e2", "12 €", "1.2.3", "a", "", "7" * 500]
    assert [*map(kinds.number_in, texts)] == [1200.5, -300.0, 12.0, None, None, None, None]


def test_objects_are_dictionaries_if_they_have_many_keys_and_each_few_of_them():
    def kind(samples):
        return type(infer(samples, fields=3).root.kinds[0])

    assert kind([{"a": 1, "b": 2, "c": 3}, {"d": 1}]) is kinds.Fields  # half of them on average
    assert kind([{"a": 1, "b": 2}, {"c": 3}, {"d": 1}]) is kinds.Dictionary
    assert kind([{c: 1} for c in "abc"]) is kinds.Fields
    assert kind([dict.fromkeys("abcdefgh", 1)] * 3) is kinds.Fields


def test_the_values_of_a_dictionary_are_counted_together():
    samples = [{k: {"x": i, "tags": [k], "d": {k * 2: True}}} for i, k in enumerate("abcdefgh")]
    (whole,) = infer([*samples, {"a": None}], fields=3).root.kinds
    assert (whole.count, whole.shortest, whole.longest, whole.value.missing) == (9, 1, 1, 1)
    assert whole.key.kinds[0].count == 9
    record = whole.value.kinds[0].fields
    edges = tuple(map(float, range(8)))
    numbers = kinds.Number(8, 3.5, pytest.approx(5.25**0.5), 0.0, 7.0, whole=True, edges=edges)
    assert record["x"].kinds[0] == numbers
    assert record["tags"].kinds[0].item.kinds[0].count == 8
    assert record["d"].kinds[0] == kinds.Dictionary(
        8,
        1,
        1,
        kinds.DataPosition(0, (kinds.Text(8, 2, 2, ("aa", "bb", "cc")),)),
        kinds.DataPosition(0, (kinds.Flags(8, 8),)),
    )


def test_a_schema_is_printed_with_counts_and_examples():
    samples = [
        {"ok": True, "kind": "cat", "mixed": 1, "tags": [], "n": 2.5, "e": {}},
        {"ok": False, "kind": "cat", "mixed": "x" * 60, "n": -1, "e": {}, "x": None},
    ]
    assert str(infer(samples)).splitlines() == [
        "record (2 values)",
        "  ok: flag (2 values): 1 true",
        "  kind: category (2 values): 'cat' 2",
        "  mixed: mixed (2 kinds)",
        "    number (1 value): whole, 1, mean 1, deviation 1",
        f"    text (1 value): 60 characters, such as '{'x' * 37}'...",
        "  tags: list (1 value, 1 missing): 0 items",
        "    each: nothing",
        "  n: number (2 values): -1 to 2.5, mean 0.75, deviation 1.75",
        "  e: record (2 values): no fields",
        "  x: nothing, 2 missing",
    ]


def test_keys_that_are_data_are_printed_apart_from_their_values():
    lines = str(infer([{f"user{i}-{j}": j for j in range(2)} for i in range(30)])).splitlines()
    assert lines[0] == "dictionary (30 values): 2 keys"
    assert lines[1].startswith("  key: text (60 values): 7 to 8 characters, such as 'user0-0'")
    assert lines[2] == "  value: number (60 values): whole, 0 to 1, mean 0.5, deviation 0.5"


SAMPLES = [
    {
        "kind": "cat" if i % 2 else "dog",
        "name": f"name {i}",
        "ok": i % 3 == 0,
        "age": i,
        "tags": ["x"] * (i % 3),
        "scores": {f"user{i}": i / 2},
        "mixed": 1 if i % 2 else "one",
        "nothing": None,
        "none": {},
        "never": [],
    }
    for i in range(80)
]
LIKE_SAMPLES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*SAMPLES[0], "new"]), inner, max_size=4),
    max_leaves=6,
)  # fmt: skip


@pytest.fixture(scope="module")
def program():
    return fb.compile(infer(SAMPLES).block(4), backend="numpy", seed=1)


def embed(block, *values):
    return np.stack(fb.compile(block, backend="numpy", seed=1).run(list(values)))


UNLIKE = pytest.mark.filterwarnings("ignore::foldbatch.errors.UnlikeSamplesWarning")


@UNLIKE
@given(st.lists(LIKE_SAMPLES, min_size=1, max_size=4))
@settings(max_examples=8)
def test_no_value_of_json_is_an_error(program, values):
    assert np.isfinite(np.stack(program.run(values))).all()


@UNLIKE
def test_null_another_kind_and_an_absent_field_are_alike(program):
    base = {**SAMPLES[5]}
    del base["age"]
    vectors = np.stack(program.run([base, {**base, "age": None}, {**base, "age": "old"}, {**base, "new": 1}]))
    assert (vectors == vectors[0]).all()
    assert not np.stack(program.run([None, 7, [], "text"])).any()


@UNLIKE
def test_each_kind_is_embedded():
    assert embed(infer([True, False]).block(3), True, False, 1).any(axis=1).tolist() == [True, True, False]
    numbers = embed(infer([1, 2, 3]).block(3), 2, 3, 10**400, float("nan"), "3")
    assert numbers.any(axis=1).tolist() == [True, True, True, False, False]
    words = embed(infer([*"aabb"]).block(3), "a", "b", "new", "newer", None)
    assert (words[2] == words[3]).all()
    assert len({*map(tuple, words.tolist())}) == 4
    texts = embed(infer(["one", "two"]).block(3, ngram=2), "one", "eno", "", 5)
    assert len({*map(tuple, texts.tolist())}) == 4
    assert texts.any(axis=1).tolist() == [True, True, True, False]
    lists = embed(infer([[1, 2], [5]]).block(3, pooling=("sum",)), [1], [1, 1], [], None)
    assert lists.any(axis=1).tolist() == [True, True, False, False]
    pairs = embed(infer([{f"k{i}": i} for i in range(40)]).block(3), {"k1": 1}, {"k2": 1}, {"k1": 30}, {})
    assert len({*map(tuple, pairs.tolist())}) == 4
    keys = embed(infer([{f"k{i}": None} for i in range(40)]).block(3), {"k1": 1}, {"k2": None})
    assert len({*map(tuple, keys.tolist())}) == 2


def test_a_block_says_what_its_formula_says():
    schema = infer(
        [{"tags": ["a", "b", "a", "b"], "n": 1.5}, {"tags": ["a"], "n": 2.5}, {"tags": [], "n": None}]
    )
    program = fb.compile(schema.block(3), backend="numpy", seed=1)
    p = {name: np.array(value, "float64") for name, value in program.params.items()}

    def layer(name, x):
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def deep(name, x):
        return FAINT * layer(f"{name}.out", np.maximum(layer(f"{name}.hidden", x), 0))

    table = p["tags[].weight"]
    number = layer("n", np.array([0.5, 0.75]))  # half a deviation, and three quarters of the only step
    items = table[[1, 2, 2]]
    pooled = np.concatenate([items.mean(0), items.max(0), np.log(np.exp(items).sum(0)), [np.log(4)]])
    tags = items.sum(0) / 3**0.5 + deep("tags[]", pooled)
    whole = tags + number + deep("record", np.concatenate([tags, number]))
    (found,) = program.run([{"tags": ["a", "b", "b"], "n": 2.25}])
    assert found == pytest.approx(whole, abs=1e-5)
    (empty,) = program.run([{"tags": None, "n": None}])
    assert empty == pytest.approx(deep("record", np.zeros(6)), abs=1e-6)


def test_a_text_is_the_sum_of_its_hashed_rows_over_a_root_and_of_the_number_it_spells():
    program = fb.compile(infer(["1 kg", "3 kg"]).block(2, ngram=2, buckets=50), backend="numpy", seed=1)
    p = {name: np.array(value, "float64") for name, value in program.params.items()}
    tokens = reading.read_tokens(reading.ANYWHERE, 2, 50, "2 KG")
    assert len(tokens) == 5 + 2
    assert tokens == reading.read_tokens(reading.ANYWHERE, 2, 50, "2 kg")

    def without_number(text):
        tokens = reading.read_tokens(reading.ANYWHERE, 2, 50, text)
        return p["record.ngrams.weight"][tokens].sum(0) / len(tokens) ** 0.5

    spelled = np.array([0.0, 0.5]) @ p["record.number.weight"] + p["record.number.bias"]
    found, unspelled = program.run(["2 kg", "two"])
    assert found == pytest.approx(without_number("2 kg") + spelled, abs=1e-6)
    assert unspelled == pytest.approx(without_number("two"), abs=1e-6)


def test_layers_see_no_texts_and_whether_items_come_again():
    samples = [{"ids": ["ab", "cd", "ab"], "n": 1.5}, {"ids": ["ef"], "n": 2.5}, {"ids": ["gh"], "n": 2.5}]
    program = fb.compile(infer(samples).block(3, ngram=2, buckets=50), backend="numpy", seed=1)
    p = {name: np.array(value, "float64") for name, value in program.params.items()}

    def layer(name, x):
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def deep(name, x):
        return FAINT * layer(f"{name}.out", np.maximum(layer(f"{name}.hidden", x), 0))

    def text(value):
        tokens = reading.read_tokens(reading.ANYWHERE, 2, 50, value)
        return p["ids[].ngrams.weight"][tokens].sum(0) / len(tokens) ** 0.5

    (found,) = program.run([{"ids": ["cd", "xy", "cd", "cd"], "n": None}])
    unseen = np.zeros(3)
    seen = deep("ids[]", np.concatenate([unseen, unseen, np.log(4) + unseen, [np.log(5)]]))
    seen = seen + layer("ids.repeats", np.array([1.0, np.log(3)]))
    bag = (3 * text("cd") + text("xy")) / 4**0.5
    assert found == pytest.approx(bag + seen + deep("record", np.concatenate([seen, unseen])), abs=1e-5)


@pytest.mark.parametrize(
    ("values", "additive"), [(["ab", "cd", "ef"], True), (["ab", "cd", "ab"] * 4, False)]
)
def test_what_a_text_says_is_the_same_beside_all_numbers(values, additive):
    """Layers would tell by both together; those of a category do."""
    samples = [{"name": value, "n": i} for i, value in enumerate(values)]
    program = fb.compile(infer(samples).block(16), backend="numpy", seed=1)
    for name, value in program.params.items():
        if name.startswith("name"):
            program.params[name] = 100 * value
    ends = 0, len(values) - 1
    vectors = program.run([{"name": name, "n": n} for n in ends for name in ("ab", "cd")])
    lower, upper = vectors[0] - vectors[1], vectors[2] - vectors[3]
    assert (np.abs(lower - upper).max() < 1e-3 * np.abs(lower).max()) == additive


@given(st.lists(st.text("abc", max_size=2), max_size=8), st.randoms())
def test_repeats_are_values_less_different_ones_in_any_order_and_by_any_name(values, random):
    read = partial(reading.read_repeats, reading.ANYWHERE, ((), ("x", "y")))
    first = read(values)
    again = len(values) - len(set(values))
    assert first == [float(again > 0), np.log1p(again), 0.0, 0.0]
    shuffled = random.sample(values, len(values))
    assert read([f"{value}!" for value in shuffled]) == first
    nested = read([{"x": {"y": value}, "z": 1} for value in shuffled])
    assert nested == [0.0, 0.0, *first[:2]]
    assert read(None) is None


def test_ids_and_texts_of_items_may_come_again_and_categories_are_in_the_bag():
    item = {"id": 7, "of": {"name": "one"}, "kind": "a", "price": 1.5, "ids": [5, 6]}
    items = [{**item, "id": i, "of": {"name": f"n{i}"}} for i in range(9)]
    params = fb.compile(infer([items, items[:4]]).block(3), backend="numpy").params
    repeats = {name: value.shape for name, value in params.items() if ".repeats.weight" in name}
    assert repeats == {"record.repeats.weight": (4, 3)}


def test_codes_have_rows_and_other_numbers_the_row_of_none():
    codes = Vocabulary(["7", "9"])
    numbers = [(value, reading.read_code(reading.ANYWHERE, codes, value)) for value in (7, 9.0, 8, 8.5)]
    assert numbers == [(7, 1), (9.0, 2), (8, 0), (8.5, 0)]
    program = fb.compile(infer([7, 7, 9, 9]).block(2), backend="numpy", seed=1)
    p = {name: np.array(value, "float64") for name, value in program.params.items()}
    layer = np.array([1.0, 1.0]) @ p["record.weight"] + p["record.bias"]
    (nine,) = program.run([9])
    assert nine == pytest.approx(layer + p["record.codes.weight"][2], abs=1e-6)


def test_fields_of_one_name_share_a_table_where_they_have_a_value_in_common():
    samples = [{"to": {"land": land}, "by": [{"land": other}]} for land, other in ("AB", "BC", "AB", "BC")]
    names = fb.compile(infer(samples).block(3), backend="numpy").params
    assert names["every.land.weight"].shape == (4, 3)
    assert names["to.land.weight"].shape == names["by[].land.weight"].shape == (3, 3)
    apart = [{"to": {"land": land}, "by": [{"land": other}]} for land, other in ("AC", "BD", "AC", "BD")]
    assert "every.land.weight" not in fb.compile(infer(apart).block(3), backend="numpy").params


def test_schemas_that_know_no_edges_make_blocks():
    plain = infer([{"n": 1.5, "on": "2024-05-06"}, {"n": 2.5, "on": "2024-05-08"}]).to_plain()
    for place in plain["kinds"][0]["fields"].values():
        del place["kinds"][0]["edges"]
    plain["kinds"][0]["fields"]["n"]["kinds"][0].pop("values")
    block = Schema.from_plain(plain).block(3)
    (vector,) = fb.compile(block, backend="numpy").run([{"n": 1.5, "on": "2024-05-07"}])
    assert np.isfinite(vector).all()


def test_hidden_layers_are_dropped_in_training_alone():
    loss = fb.Function(lambda x: fb.ops.sum(x * x)) >> fb.Loss()
    samples = [{"a": i, "b": [i, 2 * i]} for i in range(9)]
    for rate, differ in ((0.0, False), (0.5, True)):
        model = infer(samples).block(4, dropout=rate) >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)
        program = fb.compile(model, backend="numpy", seed=1)
        losses = {program.value_and_grad(samples, step=step)[0] for step in range(3)}
        assert (len(losses) > 1) == differ
        assert len({program.run(samples, step=step)[3].tobytes() for step in range(3)}) == 1
    with pytest.raises(fb.errors.BlockValueError, match="dropout from 0 up to 1"):
        infer(samples).block(4, dropout=1.0)


def test_blocks_hold_functions_of_modules_vocabularies_and_numbers_only():
    plain, seen = (str, int, float, tuple, Vocabulary, reading.Place), []

    def visit(block):
        for value in vars(block).values():
            for part in value if isinstance(value, tuple) else [value]:
                part = part[1] if isinstance(part, tuple) and len(part) == 2 else part
                if isinstance(part, fb.Block):
                    visit(part)
        if isinstance(block, fb.InputTransform):
            fn = block.fn.func if isinstance(block.fn, partial) else block.fn
            seen.append(fn)
            assert getattr(reading, fn.__name__) is fn
            assert not block.fn.keywords
            assert all(isinstance(value, plain) for value in block.fn.args)

    visit(infer(SAMPLES).block(4))
    assert len(set(seen)) == 9


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=25)
def test_any_samples_have_a_schema_that_is_plain_data(samples, categories, fields):
    text = json.dumps(infer(iter(samples), categories=categories, fields=fields).to_plain(), allow_nan=False)
    schema = Schema.from_plain(json.loads(text))
    assert schema == infer(samples, categories=categories, fields=fields)
    assert len(str(schema).splitlines()) >= 1


def test_great_depth_and_no_samples_are_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(
        ExampleError, match="expected 64 levels or fewer, found more; describe data of any depth"
    ):
        infer([deep])
    with pytest.raises(ExampleError, match="expected one sample or more, found none"):
        infer([])


def _deep(levels):
    plain = {"missing": 0, "kinds": []}
    for _ in range(levels):
        plain = {
            "missing": 0,
            "kinds": [{"kind": "list", "count": 1, "shortest": 1, "longest": 1, "item": plain}],
        }
    return plain


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "expected a schema, found Expected `object`, got `array`"),
        ({"missing": 0, "kinds": [{"kind": "colour"}]}, "colour"),
        ({"missing": 0, "kinds": [{"kind": "flag", "count": "3", "true": 1}]}, "Expected `int`, got `str`"),
        (
            {"missing": 0, "kinds": [{"kind": "number", "count": 1, "mean": 0, "deviation": 0, "minimum": 0, "maximum": 0, "whole": True}]},
            "expected a deviation above 0, found 0.0",
        ),
        ({"missing": 0, "kinds": [{"kind": "category", "count": 2, "values": [["a", 1], ["a", 1]]}]}, "found one twice"),
        (_deep(65), "expected 64 levels or fewer, found more"),
        (_deep(20_000), "expected a schema"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(plain, message):
    with pytest.raises(ModelError, match=message):
        Schema.from_plain(plain)
    assert Schema.from_plain(_deep(64)).to_plain() == _deep(64)


def test_each_function_reads_its_kind_and_nothing_else():
    functions = {
        "flag": reading.as_flag,
        "number": lambda x: reading.as_number(x, 0.0, 1.0),
        "string": lambda x: reading.as_category(x, Vocabulary(["a"])),
        "text": lambda x: reading.as_ngrams(x, 2, 10),
        "list": reading.as_list,
        "record": lambda x: reading.as_fields(x, ("a",)),
        "pairs": reading.as_pairs,
    }
    reads = {
        name: [
            i
            for i, value in enumerate((True, 1, 1.5, "a", [1], {"a": 1}, None))
            if function(value) is not None
        ]
        for name, function in functions.items()
    }
    assert reads == {
        "flag": [0],
        "number": [1, 2],
        "string": [3],
        "text": [3],
        "list": [4],
        "record": [5],
        "pairs": [5],
    }


def test_numbers_without_a_place_on_the_line_are_missing_and_far_ones_are_drawn_near():
    assert reading.as_number(float("nan"), 0.0, 1.0) is None
    assert reading.as_number(float("inf"), 0.0, 1.0) is None
    assert reading.as_number(10**400, 0.0, 1.0) == [10.0]


def test_ngrams_tell_the_ends_of_a_text_and_are_the_same_everywhere():
    assert reading.as_ngrams("ab", 2, 10**9) == [230643635, 659403885, 400930400]
    assert reading.as_ngrams("", 3, 100) == reading.as_ngrams("", 7, 100)
    assert len(reading.as_ngrams("x" * 5000, 3, 100)) == reading.MAX_TEXT
    assert reading.as_ngrams("\ud800", 1, 100) is not None
    assert reading.as_ngrams("ab", 2, 10**9)[0] != reading.as_ngrams("ba", 2, 10**9)[-1]


def test_a_schema_of_arrow_data_is_that_of_its_rows() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"a": [1.0, None], "b": [["x", "x"], ["y", "y"]]})
    assert str(infer(table)) == str(infer(table.to_pylist()))
