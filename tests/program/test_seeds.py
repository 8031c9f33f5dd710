"""Where values of parameters come from: programs that share layers, that begin anew, and seeds without effect."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import UnusedSeedWarning
from foldbatch.params.parameters import dense
from foldbatch.train import Trainer
from tests.backends import LAWFUL

R = np.random.default_rng(0)
EXAMPLES = [(R.normal(size=(n, 3)).astype("float32"), n % 2) for n in (1, 3, 2, 2)]


def of_blocks() -> Any:
    """A block whose parameters are a layer's, a stand-alone one, and one that only a loss reads."""
    enc, out = fb.Linear(4, "tanh", name="enc"), fb.Linear(2, name="out")
    shift = fb.Parameter([4], "normal", "shift")
    shifted = fb.Function(lambda x: x + shift)
    states = fb.GetItem(0) >> fb.Map(fb.Vector(3) >> enc >> shifted) >> fb.Sum()
    label = fb.GetItem(1) >> fb.Scalar("int32")
    scored = fb.AllOf(states >> out, label)
    lost = fb.Function(ops.cross_entropy) >> fb.Loss()
    return scored >> fb.AllOf(fb.GetItem(0), lost) >> fb.GetItem(0)


def of_walk(*, decides: bool = False) -> Any:
    """The same as a function, which may read numbers."""
    enc, out = fb.Linear(4, "tanh", name="enc"), fb.Linear(2, name="out")
    shift = fb.Parameter([4], "normal", "shift")

    @fb.cell
    def score(xs: list["float32[3]"]) -> Any:  # noqa: F821 - the name of a dtype
        return out(ops.segment_sum(enc(xs) + shift))

    def walk(example: Any) -> Any:
        scores = score([fb.tensor(x) for x in example[0]])
        if decides and float(scores[0]) > 0:
            scores = scores * 2.0
        fb.loss(ops.cross_entropy(scores, example[1]))
        return scores

    return walk


def of_both() -> Any:
    """A walk that calls a block, in a block that calls it."""
    enc, out = fb.Linear(4, "tanh", name="enc"), fb.Linear(2, name="out")
    shift = fb.Parameter([4], "normal", "shift")
    inner = fb.Map(fb.Vector(3) >> enc >> fb.Function(lambda x: x + shift)) >> fb.Sum()

    def state(example: Any) -> Any:
        return inner(example[0])

    label = fb.GetItem(1) >> fb.Scalar("int32")
    scored = fb.AllOf(fb.functions.Walk(state, 4) >> out, label)
    lost = fb.Function(ops.cross_entropy) >> fb.Loss()
    return scored >> fb.AllOf(fb.GetItem(0), lost) >> fb.GetItem(0)


def of_a_layer_twice() -> Any:
    """A block that uses one layer before a list and after it, where a cell reads what an earlier one computes."""
    enc, out = fb.Linear(3, "tanh", name="enc"), fb.Linear(2, name="out")
    shift = fb.Parameter([3], "normal", "shift")
    rows = fb.GetItem(0) >> fb.Map(fb.Vector(3))
    start = fb.GetItem(0) >> fb.GetItem(0) >> fb.Vector(3) >> enc
    pairs = fb.AllOf(fb.GetItem(0) >> fb.Broadcast(), fb.GetItem(1)) >> fb.Zip()
    below = pairs >> fb.Map(fb.Function(lambda a, b: a * b + shift)) >> fb.Sum()
    product = fb.Function(lambda a, b: a * b)
    states = fb.AllOf(start, rows) >> fb.AllOf(fb.GetItem(0), below) >> product >> enc
    label = fb.GetItem(1) >> fb.Scalar("int32")
    lost = fb.Function(ops.cross_entropy) >> fb.Loss()
    scored = fb.AllOf(states >> out, label)
    return scored >> fb.AllOf(fb.GetItem(0), lost) >> fb.GetItem(0)


MODELS: dict[str, Callable[[], Any]] = {
    "blocks": of_blocks,
    "a layer twice": of_a_layer_twice,
    "walk": of_walk,
    "deciding": lambda: of_walk(decides=True),
    "both": of_both,
}
both_doors = pytest.mark.parametrize("name", MODELS)
lawful = pytest.mark.parametrize("backend", LAWFUL)


def values(program: fb.Program) -> dict[str, Any]:
    return {name: value.copy() for name, value in program.params.items()}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all((a[name] == b[name]).all() for name in a)


def trained(program: fb.Program) -> fb.Program:
    fb.Adam(0.1).update(program.params, program.value_and_grad(EXAMPLES)[1])
    return program


@lawful
@both_doors
@settings(max_examples=4)
@given(seeds=st.lists(st.integers(0, 2**31), min_size=2, max_size=3))
def test_fresh_programs_have_the_values_of_new_layers_and_share_nothing(name, backend, seeds):
    template = MODELS[name]()
    shared = fb.compile(template, backend)
    shared.run(EXAMPLES)
    before = values(shared)
    programs = [fb.compile(template, backend, seed=seed, fresh=True) for seed in seeds]
    results = [list(program.run(EXAMPLES)) for program in programs]
    drawn = [values(program) for program in programs]
    for seed, numbers, result in zip(seeds, drawn, results, strict=True):
        new = fb.compile(MODELS[name](), backend, seed=seed)
        np.testing.assert_allclose(new.run(EXAMPLES), result, rtol=1e-4, atol=1e-6)
        assert same(values(new), numbers)
    assert same(drawn[0], drawn[1]) == (seeds[0] == seeds[1])
    trained(programs[0])
    assert not same(values(programs[0]), drawn[0])
    assert same(values(programs[1]), drawn[1])
    assert same(values(shared), before)


@both_doors
def test_all_that_a_program_does_reads_its_own_parameters(name):
    template = MODELS[name]()
    shared = fb.compile(template, "numpy")
    program = trained(fb.compile(template, "numpy", seed=1, fresh=True))
    new = fb.compile(MODELS[name](), "numpy", seed=1)
    new.run(EXAMPLES, losses=True)
    new.params = values(program)
    shared.run(EXAMPLES, losses=True)
    start = values(shared)
    for both in (
        lambda p: p.run(EXAMPLES),
        lambda p: p.run(EXAMPLES[:1]),
        lambda p: p.step(EXAMPLES).results,
    ):
        np.testing.assert_allclose(both(program), both(new), rtol=1e-4, atol=1e-6)
    assert program.run(EXAMPLES, losses=True).loss == pytest.approx(new.run(EXAMPLES, losses=True).loss)
    loss, gradients = program.value_and_grad(EXAMPLES)
    assert loss == pytest.approx(new.value_and_grad(EXAMPLES)[0])
    tangents = {each: dense(gradient) for each, gradient in gradients.items()}
    assert program.jvp(EXAMPLES, tangents) == pytest.approx(new.jvp(EXAMPLES, tangents), rel=1e-4)
    products = new.hvp(EXAMPLES, tangents)
    for each, product in program.hvp(EXAMPLES, tangents).items():
        np.testing.assert_allclose(product, products[each], rtol=1e-3, atol=1e-5)
    described = [[(cell.name, cell.calls) for cell in p.describe(EXAMPLES).cells] for p in (program, new)]
    assert described[0] == described[1]
    if name in ("walk", "deciding"):
        np.testing.assert_allclose(program.debug(EXAMPLES[0]).result, new.run(EXAMPLES[:1])[0], rtol=1e-4)
    assert same(values(shared), start)


def test_a_saved_program_has_its_own_parameters_whether_they_learn_and_what_comes_later(tmp_path):
    hidden, out = fb.Linear(3, name="hidden"), fb.Linear(1, name="out")
    block = fb.Vector(2) >> hidden >> out >> fb.Function(ops.sum) >> fb.Loss()
    fb.compile(block, "numpy")
    hidden.parameters["weight"].trainable = False
    program = fb.compile(block, "numpy", seed=4, fresh=True)
    hidden.parameters["weight"].trainable = True
    program.params.parameters["out.bias"].trainable = False
    assert set(program.value_and_grad([[1, 2]])[1]) == {"hidden.bias", "out.weight"}
    program.save(tmp_path / "file")
    loaded = fb.load(tmp_path / "file", "numpy")
    assert same(values(loaded), values(program))
    frozen = [name for name, p in loaded.params.parameters.items() if not p.trainable]
    assert frozen == ["hidden.weight", "out.bias"]
    assert loaded.seed == 4


@both_doors
def test_a_seed_without_effect_is_warned_of_once(name):
    template = MODELS[name]()
    first = fb.compile(template, "numpy", seed=1)
    first.run(EXAMPLES, losses=True)
    with warnings.catch_warnings(action="error"):
        fb.compile(template, "numpy", seed=1).run(EXAMPLES, losses=True)
        fb.compile(template, "numpy").run(EXAMPLES, losses=True)
        fb.compile(template, "numpy", seed=2, fresh=True).run(EXAMPLES, losses=True)

    def warned_with(seed: int) -> str:
        with pytest.warns(UnusedSeedWarning) as caught:
            program = fb.compile(template, "numpy", seed=seed)
            for _ in range(2):
                program.run(EXAMPLES)
                program.run(EXAMPLES, losses=True)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        return str(caught[0].message)

    expected = "fb.compile seed: expected parameters without values, or with those that seed 2 draws, found"
    text = warned_with(2)
    assert text.startswith(f"{expected} other values in ")
    assert {*text.partition("values in ")[2].partition(";")[0].split(", ")} == {
        "enc.weight",
        "out.weight",
        "shift",
    }  # not the biases, which are zeros from every seed
    assert "fresh=True gives this program new ones" in text
    first.params["out.bias"][...] = 1  # in place, where nothing could take note
    assert "other values in out.bias;" in warned_with(1)
    first.params["out.bias"] = [0, 0]
    with warnings.catch_warnings(action="error"):
        fb.compile(template, "numpy", seed=1).run(EXAMPLES, losses=True)
    trained(first)
    assert "enc.weight" in warned_with(1)


@pytest.mark.parametrize(
    "init", ["zeros", 0.5, [1.0, 2.0], "normal", lambda rng, shape: rng.normal(size=shape)]
)
def test_a_parameter_follows_the_seeds_that_would_give_it_its_value(init):
    parameter = fb.Parameter([2], init, "p")
    drawn = callable(init) or init == "normal"
    assert parameter.follows(3) or not drawn
    parameter.initialize(3, "layer.p")
    assert parameter.follows(3)
    assert parameter.follows(4) == (not drawn)
    parameter.value[1] += 1
    assert not parameter.follows(3)
    assert not parameter.follows(4)


def test_each_fold_of_a_cross_validation_begins_anew():
    draw = np.random.default_rng(3)
    noise = [(draw.normal(size=(2, 3)).astype("float32"), int(draw.integers(2))) for _ in range(40)]
    outcomes = {}
    for name, template in (("blocks", of_blocks()), ("walk", of_walk())):
        outcomes[name] = []
        for k in range(2):
            program = fb.compile(template, "numpy", seed=k, fresh=True)
            rest = [example for i, example in enumerate(noise) if i % 2 != k]
            before = program.run(rest, losses=True).loss / len(rest)
            Trainer(program, fb.Adam(0.05), batch_size=8).fit(rest, epochs=20)
            held_out = noise[k::2]
            pairs = zip(program.run(held_out), held_out, strict=True)
            right = [result.argmax() == label for result, (_, label) in pairs]
            outcomes[name].append((before, np.mean(right)))
    for name, folds in outcomes.items():
        assert all(before > 0.5 for before, _ in folds), name  # about log 2: nothing was learnt of the labels
        assert all(accuracy < 0.8 for _, accuracy in folds), name


# -- random numbers of runs


def drawing(name: str) -> Any:
    """Return a model that draws while it infers: a block, a walk, or one whose draws decide."""
    noisy = fb.cell(lambda x: x + ops.random((2,)))

    def walk(x: Any) -> Any:
        return noisy(fb.tensor(x))

    def deciding(x: Any) -> Any:
        state = walk(x)
        while float(state[0]) < 0.5:
            state = noisy(state * 0.0)
        return state

    blocks = fb.Vector(2) >> fb.Function(lambda x: x + ops.random((2,)))
    return {"blocks": blocks, "walk": walk, "deciding": deciding}[name]


ZEROS = [np.zeros(2, "float32")] * 3


@pytest.mark.parametrize("backend", LAWFUL)
@pytest.mark.parametrize("name", ["blocks", "walk", "deciding"])
def test_runs_draw_anew_repeatably_and_change_no_training(name, backend):
    model = drawing(name)
    program, again = fb.compile(model, backend), fb.compile(model, backend)
    turns = [np.array(program.run(ZEROS)) for _ in range(4)]
    assert len({turn.tobytes() for turn in turns}) == 4
    assert len({row.tobytes() for row in turns[0]}) == 3
    assert program.steps_drawn == 0
    for k, turn in enumerate(turns):
        np.testing.assert_array_equal(again.run(ZEROS), turn)
        np.testing.assert_array_equal(program.run(ZEROS, step=k), turn)
    assert not np.array_equal(fb.compile(model, backend, seed=1).run(ZEROS), turns[0])
    if name != "deciding":
        planned = again.plan(ZEROS)
        np.testing.assert_array_equal(again.run(planned, step=2), turns[2])
        assert not np.array_equal(again.run(planned), again.run(planned))
        assert not np.array_equal(again.run(ZEROS, losses=True), again.run(ZEROS, losses=True))


def test_evaluation_draws_the_same_each_time_and_anew_in_each_part():
    noise = fb.Scalar() >> fb.Function(lambda x: x * ops.random(())) >> fb.Loss()
    trainer = Trainer(fb.compile(noise, "numpy"), fb.SGD(0.1))
    examples = [1.0] * 512  # in two parts
    first = trainer.evaluate(examples)["loss"]
    assert trainer.evaluate(examples)["loss"] == first
    assert trainer.evaluate(examples[:256])["loss"] != first  # or the second part would repeat the first
