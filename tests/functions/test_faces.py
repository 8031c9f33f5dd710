"""What stands around a program works on walks as on blocks, or says in a sentence why not."""

import multiprocessing
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import cli
from foldbatch.errors import (
    BlockTypeError,
    ExampleError,
    ParameterError,
    TrainingError,
    UnknownNameError,
    WalkError,
)
from foldbatch.params.parameters import dense
from foldbatch.program.predicting import unlabelled
from foldbatch.train import Accuracy, Adam, AverageWeights, Checkpoints, DataParallel, Trainer
from foldbatch.views import draw_schedule
from tests.communicators.threads import in_threads

WALK = """
import foldbatch as fb

WORDS = fb.trees.Vocabulary(["good", "bad", "film", "not"])
lstm, embed, classify = fb.TreeLSTM(4, name="lstm"), fb.Embedding(5, 4, name="embed"), fb.Linear(2, name="classify")

@fb.cell
def leaf(word):
    return lstm(embed(word), ())

@fb.cell
def node(left, right):
    return lstm(None, (left, right))

@fb.cell
def scores(state):
    return classify(state[0])

def visit(tree):
    state = leaf(WORDS[tree.token]) if tree.is_leaf else node(*[visit(child)[0] for child in tree.children])
    logits = scores(state)
    fb.metric("node", logits, label=tree.label)
    fb.loss(fb.ops.cross_entropy(logits, tree.label))
    return state, logits

def walk(tree):
    _, logits = visit(tree)
    fb.metric("root", logits, label=tree.label)
    return logits
"""
TEXTS = ["(1 (1 good) (1 film))", "(0 bad)", "(0 (0 not) (1 (1 good) (1 film)))", "(0 (0 bad) (1 film))"]


def trees() -> list[Any]:
    return [fb.trees.parse_brackets(text, labels=int) for text in TEXTS]


def module() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "walkfaces"}
    exec(WALK, names)
    return names


@pytest.fixture
def program() -> fb.Program:
    return fb.compile(module()["walk"], "numpy", seed=1)


def scaled(numbers: list[float]) -> Any:
    """A walk of one parameter whose derivatives are known."""
    total = fb.tensor(0.0)
    for number in numbers:
        total = total + fb.tensor(number) * WEIGHT * WEIGHT
    fb.loss(total)
    return total


WEIGHT = fb.Parameter([], init=3.0, name="w")


def test_derivatives_are_those_of_calculus() -> None:
    program = fb.compile(scaled, "numpy")
    examples = [[1.0, 2.0], [], [4.0]]
    program.warm(examples)
    assert program.jvp(examples, {"w": 1.0}) == (63.0, 42.0)
    assert program.hvp(examples, {"w": 1.0}) == {"w": 14.0}
    inputs = program.vjp(examples, inputs=True).inputs
    assert inputs["tensor(x0)"].values.tolist() == [1.0, 9.0, 9.0, 1.0, 1.0, 9.0]
    assert inputs["tensor(x0)"].examples.tolist() == [0, 0, 0, 1, 2, 2]
    found = program.vjp(examples, [1.0, None, 0.5])
    assert float(found.gradients["w"]) == 6.0 * 3 + 0.5 * 6 * 4


def test_a_nan_is_found_at_the_line_of_its_call() -> None:
    linear = fb.Linear(1, init=1e38, name="linear")
    ratio = fb.cell(lambda a, b: a / b)

    def walk(pairs: list[tuple[float, float]]) -> None:
        for a, b in pairs:
            value = ratio(a, b)  # the line that is named
            fb.loss(linear(fb.ops.reshape(value, (1,)))[0])

    program = fb.compile(walk, "numpy")
    line = walk.__code__.co_firstlineno + 2
    found = program.find_nan([[(1.0, 2.0)], [(1.0, 1.0), (3.0, 0.0)]])
    assert found is not None
    assert (found.example, found.op, found.call) == (1, "divide", 1)
    assert found.place.endswith(f".walk (test_faces.py:{line})")
    again = program.find_nan([[(9.0, 1.0)]])
    assert again is not None and again.place.endswith(f"test_faces.py:{line + 1})")


def test_none_comes_back_where_other_examples_have_an_object() -> None:
    double = fb.cell(lambda x: x * 2)
    program = fb.compile(lambda x: (double(x[0]), [x[1]]) if x else None, "numpy")
    assert program.run([(1.0, None), (2.0, "label")]) == [(2.0, [None]), (4.0, ["label"])]
    program = fb.compile(lambda x: None if x < 2 else x, "numpy")
    assert program.run([1, 2]) == [None, 2]


def test_unlabelled_examples_are_predicted(program: fb.Program) -> None:
    right = list(program.run(trees()))
    np.testing.assert_array_equal(list(program.run(without_labels())), right)
    results = program.run([*trees(), without_labels()[0]], losses=True)
    assert results.loss == program.run(trees(), losses=True).loss


def without_labels() -> list[Any]:
    return [unlabelled(tree, {"task": "nodes"}) for tree in trees()]


def test_examples_ahead_of_their_turn_run_alike(program: fb.Program) -> None:
    examples = trees()
    loss = program.value_and_grad(examples)[0]
    prepared = pickle.loads(pickle.dumps(program.prepare(examples)))
    assert program.value_and_grad(program.plan(examples))[0] == loss
    assert program.value_and_grad(prepared)[0] == loss
    assert [program.value_and_grad(batch)[0] for batch in fb.train.prefetched(program, [examples])] == [loss]
    other = fb.compile(program.lowered.origin, "numpy")
    other.warm(examples)
    assert other.value_and_grad(prepared)[0] == loss


def test_a_tree_that_brings_a_new_cell_is_planned_for_the_model_that_has_it(program: fb.Program) -> None:
    first, second = fb.trees.parse_brackets("(0 bad)", labels=int), trees()[0]
    results = [program.run([tree])[0] for tree in (first, second, first, second)]
    np.testing.assert_allclose(results, [*program.run([first, second])] * 2, rtol=1e-6)


def trainer(folder: Any, walk: Any, **options: Any) -> Trainer:
    callbacks = [AverageWeights(0.9), Checkpoints(folder, every=1)] if folder else []
    return Trainer(walk, Adam(0.05), batch_size=1, metrics=[Accuracy("node")], callbacks=callbacks, **options)


def test_a_resumed_training_is_one_without_a_break_though_the_order_of_batches_brings_cells(tmp_path):
    def made() -> fb.Program:
        return fb.compile(module()["walk"], "numpy", seed=1)

    whole = trainer(tmp_path / "whole", made())
    figures = whole.fit(trees(), trees(), epochs=4)
    trainer(tmp_path / "part", made()).fit(trees(), trees(), epochs=2)
    resumed = trainer(tmp_path / "part", made())
    again = resumed.fit(trees(), trees(), epochs=4, resume=True)
    for name, value in whole.program.params.items():
        np.testing.assert_array_equal(resumed.program.params[name], value)
    assert [each["validation_accuracy"] for each in again] == [
        each["validation_accuracy"] for each in figures
    ]
    assert figures[-1]["loss"] < figures[0]["loss"] / 2
    with pytest.raises(
        UnknownNameError, match="expected the name of a metric of the walk, of node, root, found 'nodes'"
    ):
        Trainer(made(), Adam(), metrics=[Accuracy("nodes")]).fit(trees(), epochs=1)


def test_ranks_train_as_one_process_and_those_that_learnt_unlike_are_told() -> None:
    walks = [module()["walk"] for _ in range(3)]
    alone = trainer(None, fb.compile(walks[2], "numpy", seed=1)).fit(trees(), epochs=2)

    def work(communicator: Any) -> Any:
        walk = fb.compile(walks[communicator.rank], "numpy", seed=1)
        parallel = DataParallel(walk, communicator)
        made = Trainer(parallel, Adam(0.05), batch_size=1, metrics=[Accuracy("node")])
        losses = [each["loss"] for each in made.fit(parallel.prepare(trees()), epochs=2)]
        other = DataParallel(fb.compile(walks[communicator.rank], "numpy"), communicator)
        try:
            other.sum_of(trees()[:2])  # of which each runs one, and has not been warm
        except TrainingError as error:
            return losses, str(error)
        return losses, "nothing"

    for losses, error in in_threads(work, 2):
        assert losses == pytest.approx([each["loss"] for each in alone], rel=1e-5)
        assert (
            "expected all ranks to have learnt the same parameters, found others at rank 1 than at rank 0"
            in error
        )


def child(program: fb.Program, queue: Any) -> None:
    queue.put(program.value_and_grad(trees())[0])


def test_a_child_that_is_forked_while_a_thread_notes_can_note(program: fb.Program) -> None:
    loss = program.value_and_grad(trees())[0]
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            program.run(trees())

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(3):
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            process = context.Process(target=child, args=(program, queue))
            process.start()
            assert queue.get(timeout=30) == loss
            process.join()
    finally:
        done.set()
        thread.join()


def test_a_report_tells_how_often_it_was_linked_and_what_could_be_one_cell(program: fb.Program) -> None:
    program.run(trees()[1:2])
    text = " ".join(str(program.describe(trees(), compare=False)).split())
    assert "linked 2 times, as batches brought new cells or wires; 7 cells and 12 wires are known" in text
    assert "cross_entropy, loss, metric node and scores always ran together, 12 calls each" in text
    assert "node(left: (float32[4], float32[4])" in program.describe(trees(), compare=False).program
    assert "no cells are known yet: call program.warm" in str(
        fb.explain(fb.compile(program.lowered.origin, "numpy"))
    )
    assert draw_schedule(program, trees()).startswith("<svg")
    assert any(span.name == "trace" for span in program.profile(trees(), steps=1).spans)


def test_what_is_no_walk_is_refused_when_it_is_compiled() -> None:
    def generator(x: Any) -> Any:
        yield x

    for wrong, found in ((lambda a, b: a, r"<lambda>\(a, b\)"), (generator, "generator.*, which yields")):
        with pytest.raises(WalkError, match=f"fb.compile: expected a function .*, found {found}"):
            fb.compile(wrong)


def test_commands_take_the_file_of_a_walk(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    (tmp_path / "walkfaces.py").write_text(WALK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import walkfaces  # noqa: PLC0415

    program = fb.compile(walkfaces.walk, "numpy")
    trainer(None, program).fit(trees(), epochs=30)
    notes = {"task": "nodes", "classes": ["neg", "pos"], "configuration": {"data": {"format": "sst"}}}
    program.save("model", notes)
    (tmp_path / "data.txt").write_text("\n".join(TEXTS) + "\n")
    trusting = ["--trust", "walkfaces"]
    assert cli.main(["predict", "model", "data.txt"]) == 2
    assert "pass trust=" in capsys.readouterr().err
    assert cli.main(["predict", "model", "data.txt", "--nodes", "--backend", "numpy", *trusting]) == 0
    assert [line[:14] for line in capsys.readouterr().out.splitlines()] == [
        f'{{"label":"{name}"' for name in ("pos", "neg", "neg", "neg")
    ]
    assert cli.main(["eval", "model", "data.txt", "--backend", "numpy", *trusting]) == 0
    assert "node_accuracy 1" in capsys.readouterr().out
    assert cli.main(["inspect", "model", "data.txt", "--backend", "numpy", *trusting]) == 0
    assert "linked once" in capsys.readouterr().out
    pytest.importorskip("onnxruntime", reason="needs ONNX: pip install -e '.[onnx]'")
    assert cli.main(["export", "model", "model.onnx", "--check", "data.txt", *trusting]) == 0
    assert "largest difference on 4 examples" in capsys.readouterr().out


def test_predict_says_which_line_a_walk_cannot_read(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    text = "import foldbatch as fb\n\n\ndef walk(x):\n    return fb.tensor(x['a'] if 'c' in x else float(x['a']))\n"
    (tmp_path / "readswalk.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import readswalk  # noqa: PLC0415

    program = fb.compile(readswalk.walk, "numpy")
    program.warm([{"a": 1}])
    program.save("model.safetensors")
    good = '{"a":1}\n' * 300
    for line, found in (('{"b":1}', "KeyError: 'a'"), ('{"a":"x"}', "ValueError: could not convert")):
        (tmp_path / "data.jsonl").write_text(good + line + "\n")
        assert cli.main(["predict", "model.safetensors", "data.jsonl", "--trust", "readswalk"]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"error: data.jsonl:301 walk: expected a walk that succeeds, found {found}")
        assert told.endswith(f"; look at {tmp_path / 'readswalk.py'}:5, in walk\n")
    (tmp_path / "data.jsonl").write_text(good + '{"a":"x","c":1}\n')
    assert cli.main(["predict", "model.safetensors", "data.jsonl", "--trust", "readswalk"]) == 2
    assert "error: data.jsonl:301 fb.tensor: expected numbers, found str 'x'; give" in capsys.readouterr().err
    with pytest.raises(KeyError) as caught:
        program.predict([{"a": 1}] * 300 + [{}])
    assert "in the walk of example 300" in caught.value.__notes__[0]
    block = fb.compile(fb.GetItem("a") >> fb.Scalar(), "numpy")
    with pytest.raises(ExampleError, match="at example 300: expected an item 'a'"):
        block.predict([{"a": 1}] * 300 + [{}])


def test_pytorch_trains_a_walk() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")
    module_ = fb.torch.Module(module()["walk"], "numpy", seed=1)
    with pytest.raises(ParameterError, match=r"found none, as it has seen no examples; call module.warm"):
        list(module_.parameters())
    new = r"the new classify.bias, .*; call module.warm\(examples\) before"
    with pytest.warns(fb.errors.NewParametersWarning, match=new):
        module_.loss(trees()[1:2])
    with pytest.warns(fb.errors.NewParametersWarning, match=r"the new lstm.recurrent; call module.warm"):
        module_.loss(trees()).backward()
    loss, gradients = module_.program.value_and_grad(trees())
    for name, parameter in module_.named_parameters():
        gradient = gradients[name]
        np.testing.assert_allclose(parameter.grad.numpy(), dense(gradient), rtol=1e-6, atol=1e-7)
    optimizer = torch.optim.Adam(module_.parameters(), 0.05)
    for _ in range(20):
        optimizer.zero_grad()
        module_.loss(trees()).backward()
        optimizer.step()
    assert module_.loss(trees()).item() < loss / 4
    linear = fb.Linear(1, init=2.0)
    head = fb.torch.Module(lambda x: [linear(fb.tensor(x))], "numpy")
    x = torch.ones(3, requires_grad=True)
    head.warm([[1.0, 1.0, 1.0]])
    head.nodes([x]).values.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(BlockTypeError, match="one of a plain function, whose layers are not its own"):
        pickle.dumps(head)
