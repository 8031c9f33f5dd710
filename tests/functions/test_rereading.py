"""The law of readings: an example that its walk consumes or changes gives what one reading gives, or is refused."""

import gc
import io
import os
import pickle
import signal
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines import runner
from foldbatch.errors import DecidingError, ExampleError, WalkError
from foldbatch.functions import notes, readings
from foldbatch.model import rereading
from foldbatch.recipes.fitting import SCRIPTED
from foldbatch.serve.service import Continuous, ServedModel, Service
from foldbatch.system import processes
from foldbatch.train import prefetched
from tests.backends import lacking

ENGINES = [name for name in ("numpy", "llvm") if not lacking(name)]
engines = pytest.mark.parametrize("engine", ENGINES)
GOOD, BAD = [[1, 2, 3], [], [4, 5]], [[1, 2], [3, 99, 4], [5]]  # 99 is no id
COUNTS = [float(len(words)) for words in GOOD]


@dataclass
class Cursor:
    words: list[int]
    at: int = 0


def popped(words: list[int]) -> Iterator[int]:
    while words:
        yield words.pop(0)


def stepped(example: dict[str, Any]) -> Iterator[int]:
    while example["at"] < len(example["words"]):
        example["at"] += 1
        yield example["words"][example["at"] - 1]


def moved(cursor: Cursor) -> Iterator[int]:
    while cursor.at < len(cursor.words):
        cursor.at += 1
        yield cursor.words[cursor.at - 1]


def erased(words: np.ndarray) -> Iterator[int]:
    for place, word in enumerate(words.tolist()):
        if word >= 0:
            words[place] = -1
            yield word


# how an example is made of words, and how its walk goes through it
WAYS: dict[str, tuple[Callable[[list[int]], Any], Callable[[Any], Iterator[int]]]] = {
    "pops": (list, popped),
    "counts in a dict": (lambda words: {"words": list(words), "at": 0}, stepped),
    "writes an attribute": (lambda words: Cursor(list(words)), moved),
    "writes to an array": (lambda words: np.array(words, np.int64), erased),
    "reads an iterator": (lambda words: (word for word in words), iter),
    "reads a file": (
        lambda words: io.StringIO("".join(f"{w}\n" for w in words)),
        lambda file: map(int, file),
    ),
}
ways = pytest.mark.parametrize("way", WAYS)


class Decides:
    """Whether walks ask for numbers."""

    now = False


def counting(way: str, kind: str) -> tuple[Callable[[list[list[int]]], list[Any]], Callable[..., Any]]:
    """Return what makes a batch, and a walk that counts the words of its example with a cell for each."""
    made, through = WAYS[way]
    embed = fb.Embedding(10, 1, init="ones", name="embed")
    add = fb.cell(lambda h, word: h + embed(word))

    def plain(example: Any) -> Any:
        h = fb.tensor([0.0])
        for word in through(example):
            h = add(h, word)
            if Decides.now and float(h[0]) > 100:
                break
        fb.loss(h[0])
        return h[0]

    async def awaited(example: Any) -> Any:
        h = fb.tensor([0.0])
        for word in through(example):
            h = add(h, word)
            if Decides.now and float(await h[0]) > 100:
                break
        fb.loss(h[0])
        return h[0]

    return (lambda batch: [made(words) for words in batch]), awaited if kind == "awaits" else plain


@pytest.mark.parametrize(
    ("engine", "earlier"),
    [("numpy", 0), *((engine, readings.SNAPSHOT_BATCHES + 1) for engine in ENGINES)],  # batches before
)
@ways
@pytest.mark.parametrize("kind", ["reads no number", "decides", "decides later", "awaits"])
def test_what_a_batch_gives_is_what_one_reading_gives(engine, way, kind, earlier, monkeypatch):
    monkeypatch.setattr(Decides, "now", kind in ("decides", "awaits"))
    batch, walk = counting(way, kind)
    program = fb.compile(walk, engine)
    for _ in range(earlier):
        program.run(batch([[1, 2], [3]]))
    asks = (
        lambda given: [float(x) for x in program.run(given)],
        lambda given: program.value_and_grad(given)[0],
        lambda given: [float(x) for x in program.step(given).results],
    )
    rights = COUNTS, sum(COUNTS), COUNTS
    monkeypatch.setattr(Decides, "now", kind != "reads no number")
    for ask, right in zip(asks, rights, strict=True):
        assert ask(batch(GOOD)) == right
        with pytest.raises(ExampleError, match=r"\(word\) at example 1: expected int32 from 0 to 9, found"):
            ask(batch(BAD))
        assert ask(batch(GOOD)) == right
    if kind == "decides":
        found = program.run(batch(BAD), return_exceptions=True)
        assert [found[0], found[2]] == [2.0, 1.0]
        assert isinstance(found[1], ExampleError)


@engines
@pytest.mark.parametrize("awaits", [False, True])
def test_walks_that_have_ended_before_one_asks_keep_their_values(engine, awaits):
    half = fb.cell(lambda x: x * 0.5)

    def plain(example: tuple[float, str]) -> Any:
        x, kind = fb.tensor(example[0]), example[1]
        if kind == "together":
            return fb.ops.sum(fb.ops.stack(list(fb.together(lambda: half(x), lambda: half(half(x))))))
        while kind == "asks" and float(x) >= 1:
            x = half(x)
        return half(x)

    async def awaited(example: tuple[float, str]) -> Any:
        x = fb.tensor(example[0])
        while example[1] == "asks" and float(await x) >= 1:
            x = half(x)
        return half(x)

    examples = [(1.0, ""), (2.0, ""), (5.0, "asks"), (3.0, ""), (9.0, "asks")]
    rights = [0.5, 1.0, 0.3125, 1.5, 0.28125]
    if not awaits:
        examples.insert(1, (4.0, "together"))
        rights.insert(1, 3.0)
    program = fb.compile(awaited if awaits else plain, engine)
    for _ in range(2):
        assert list(program.run(examples)) == rights


@ways
@pytest.mark.parametrize("kind", ["reads no number", "decides"])
def test_what_reads_examples_several_times_is_right_or_refuses_them(way, kind, monkeypatch, engine="numpy"):
    monkeypatch.setattr(Decides, "now", kind == "decides")
    batch, walk = counting(way, kind)

    def fitted(given: list[Any]) -> float:
        trainer = fb.train.Trainer(fb.compile(walk, engine), fb.SGD(1e-9), batch_size=2)
        return trainer.fit(given, epochs=2)[-1]["loss"] * len(given)

    def warmed(given: list[Any]) -> float:
        program = fb.compile(walk, engine)
        program.warm(given)
        return program.value_and_grad(given)[0]

    def described(given: list[Any]) -> float:
        return sum(
            cell.calls for cell in fb.compile(walk, engine).describe(given).cells if "lambda" in cell.name
        )

    def profiled(given: list[Any]) -> float:
        fb.compile(walk, engine).profile(given, steps=2)
        return sum(COUNTS)

    def prepared(given: list[Any]) -> float:
        program = fb.compile(walk, engine)
        ahead = program.prepare(given)
        program.value_and_grad(ahead)
        return program.value_and_grad(ahead)[0]

    def planned(given: list[Any]) -> float:
        program = fb.compile(walk, engine)
        (plan,) = prefetched(program, [given])
        if not isinstance(plan, list):  # else it decides, and comes as it is
            program.value_and_grad(plan)
        return program.value_and_grad(plan)[0]

    def looked_for_nan(given: list[Any]) -> float:
        assert fb.compile(walk, engine).find_nan(given) is None
        return sum(COUNTS)

    for ask in (fitted, warmed, described, profiled, prepared, planned, looked_for_nan):
        try:
            found = ask(batch(GOOD))
        except (ExampleError, DecidingError) as error:
            again = "data that can be read again" in str(error)
            assert (again and ask in (fitted, warmed, profiled, planned)) or isinstance(
                error, DecidingError
            ), ask
        else:
            assert found == pytest.approx(sum(COUNTS)), ask


@ways
def test_a_bad_example_leaves_the_answers_of_others_what_they_are(way, monkeypatch):
    monkeypatch.setattr(Decides, "now", False)
    batch, walk = counting(way, "reads no number")
    service = Service.__new__(Service)
    service.model = ServedModel([fb.compile(walk, "numpy")], {"task": None, "classes": None}, SCRIPTED)
    answers = service.answer(batch([*GOOD, [99], *GOOD]))
    assert isinstance(answers.pop(3), ExampleError)
    for answer, count in zip(answers, COUNTS * 2, strict=True):
        refused = isinstance(answer, ExampleError) and "data that can be read again" in str(answer)
        assert answer == {"result": count} or (refused and way not in ("pops", "counts in a dict"))


def test_what_a_walk_raises_for_one_example_is_its_answer_alone():
    service = Service.__new__(Service)
    walk = lambda example: fb.tensor(float(example["x"])) * 2.0  # noqa: E731
    service.model = ServedModel([fb.compile(walk, "numpy")], {"task": None, "classes": None}, SCRIPTED)
    first, failed, last = service.answer([{"x": 1}, {"y": 1}, {"x": 3}])
    assert [first, last] == [{"result": 2.0}, {"result": 6.0}]
    assert isinstance(failed, KeyError)


@engines
def test_a_walk_that_goes_deep_gives_what_one_reading_gives_or_is_refused(engine):
    first = fb.cell(lambda x: fb.ops.cast(x, "float32"))
    more = fb.cell(lambda x: x + 1.0)

    def visit(tokens: list[int]) -> Any:
        if not tokens:
            return first(0)
        tokens.pop()
        return more(visit(tokens))

    program = fb.compile(visit, engine)
    assert program.run([[0] * 100]) == [100.0]
    try:
        assert program.run([[0] * 3000]) == [3000.0]
    except WalkError as error:
        assert not notes.IN_PLACE
        assert "data that can be read again, as a walk this deep begins anew" in str(error)
    assert program.run([[0] * 3000]) == [3000.0]


def test_a_walk_that_goes_deep_has_what_is_local_to_its_thread():
    local = threading.local()
    local.scale = 10.0
    leaf, inner = fb.cell(lambda x: x * 1.0), fb.cell(lambda x: x * 1.0)

    def scaled(tree: Any) -> Any:
        if tree is None:
            local.seen = True
            return leaf(getattr(local, "scale", 1.0))
        return inner(scaled(tree[0]))

    tree = None
    for _ in range(3000):
        tree = (tree,)
    assert fb.compile(scaled, "numpy").run([tree]) == [10.0]
    assert local.seen
    with pytest.raises(ZeroDivisionError) as caught:
        processes.in_depth(lambda: 1 // 0, 10_000)
    assert caught.value.__notes__ == [processes.APART]


@engines
def test_a_walk_that_handles_the_error_of_a_datum_is_read_with_each_datum_checked(engine):
    embed = fb.Embedding(10, 1, init="ones")
    look = fb.cell(lambda word: embed(word))

    def walk(words: list[int]) -> Any:
        word = words.pop()
        try:
            return look(word)
        except ExampleError:
            return look(words.pop())

    program = fb.compile(walk, engine)
    for _ in range(readings.SNAPSHOT_BATCHES + 1):
        program.run([[1, 2]])
    with pytest.raises(
        ExampleError, match="at example 1: expected int32 from 0 to 9, found int 99"
    ) as caught:
        program.run([[1, 2], [3, 99]])
    assert caught.value.__notes__ == [readings.LATER]
    for _ in range(readings.CHECKED + 2):
        assert program.run([[1, 2], [3, 99]]) == [1.0, 1.0]


@engines
def test_a_walk_whose_second_reading_is_another_one_keeps_its_error(engine):
    """It reads what no example holds."""
    embed = fb.Embedding(10, 1, init="ones")
    words = [99]
    walk = lambda _: embed(words.pop() if words else 1)  # noqa: E731
    with pytest.raises(ExampleError, match="at example 0: expected ids|int32 from 0 to 9, found int 99"):
        fb.compile(walk, engine).run([1])


def test_an_example_that_its_reading_changes_to_no_effect_can_be_trained_on():
    embed, out = fb.Embedding(10, 1, init="ones"), fb.Linear(1, init="ones")

    def walk(example: dict[str, Any]) -> None:
        ids = example.setdefault("ids", [ord(c) % 10 for c in example["text"]])
        for word in ids:
            fb.loss(out(embed(word))[0])

    trainer = fb.train.Trainer(fb.compile(walk, "numpy"), fb.SGD(1e-9), batch_size=2)
    assert trainer.fit([{"text": "ab"}, {"text": "c"}], epochs=2)[-1]["loss"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("block", "made"),
    [
        (fb.InputTransform(lambda x: x["words"].pop()) >> fb.Scalar(), lambda: {"words": [1.0, 2.0]}),
        (fb.Map(fb.Scalar()) >> fb.Sum(), lambda: iter([1.0, 2.0])),
    ],
)
def test_examples_that_blocks_consume_are_not_trained_on(block, made):
    trainer = fb.train.Trainer(fb.compile(block >> fb.Loss(), "numpy"), fb.SGD(0.1), batch_size=2)
    with pytest.raises(
        ExampleError, match="example 0: expected data that can be read again, as fit reads it"
    ):
        trainer.fit([made() for _ in range(4)], epochs=2)


def test_examples_that_are_made_anew_at_each_reading_may_be_consumed():
    class Made:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, place: int) -> Any:
            if not 0 <= place < 4:
                raise IndexError
            return iter([1.0] * (place + 1))

    weight = fb.Parameter([], init=1.0)
    walk = lambda numbers: [fb.loss(fb.tensor(x) * weight) for x in numbers]  # noqa: E731
    trainer = fb.train.Trainer(fb.compile(walk, "numpy"), fb.SGD(1e-9), batch_size=2)
    assert trainer.fit(Made(), epochs=2)[-1]["loss"] == pytest.approx(2.5)


def test_examples_of_several_models_are_read_by_each_of_them_or_refused():
    from foldbatch.program.predicting import predictions  # noqa: PLC0415 - of this test alone

    programs = [fb.compile(lambda words: fb.tensor([float(words.pop()), 0.0]), "numpy") for _ in range(2)]
    with pytest.raises(ExampleError, match="example 0: expected data that can be read again, as 2 models"):
        list(predictions(programs, {"classes": ["a", "b"]}, [[1, 2]]))


# -- what is prepared stays, when the walk brings something


def test_few_objects_of_classes_in_c_are_pickled(monkeypatch):
    """A pickle may take milliseconds: that of a text of spaCy holds its vocabulary."""
    elements = [ET.Element("a") for _ in range(rereading.PICKLED + 1)]
    pickled = Mock(side_effect=pickle.dumps)
    monkeypatch.setattr(rereading.pickle, "dumps", pickled)
    before = rereading.Snapshot([elements])
    assert pickled.call_count == rereading.PICKLED
    assert rereading.iterator_in(elements) is None and pickled.call_count == rereading.PICKLED
    assert rereading.obstacle([elements], before).actual.endswith("whose contents nothing can list")
    first = rereading.Snapshot(elements[:1])
    assert rereading.obstacle(elements[:1], first) is None
    elements[0].tag = "b"
    assert rereading.obstacle(elements[:1], first).actual.endswith("has changed since it was read")


def growing(engine: str) -> tuple[fb.Program, list[Any]]:
    embed, out = fb.Embedding(9, 2, name="embed"), fb.Linear(2, name="out")
    word = fb.cell(lambda w: (embed(w), fb.ops.tanh(embed(w))))
    add, half = fb.cell(lambda a, b: fb.ops.tanh(a + b)), fb.cell(lambda a: a * 0.5)
    score = fb.cell(lambda h, y: fb.loss(fb.ops.cross_entropy(out(h), y)))

    def walk(example: Any) -> Any:
        words, label, *asked = example
        h, beside = word(words[0])
        for w in words[1:]:
            h = add(h, word(w)[0])
        if "half" in asked:
            h = half(h)
        if "beside" in asked:
            h = add(h, beside)
        score(h, label)
        return h

    return fb.compile(walk, engine), [([1, 2, 3], 1), ([4], 0), ([5, 6], 1)]


@engines
def test_prepared_examples_fit_a_model_that_has_grown(engine):
    program, examples = growing(engine)
    ahead = program.prepare(examples)
    right, rows = program.value_and_grad(ahead), list(program.run(examples))
    program.run([([1, 2], 0, "half")])
    mixed = [ahead[0], examples[1], ahead[2]]
    for given in (ahead, mixed, [*program.prepare(examples[:1]), *ahead[1:]]):
        loss, gradients = program.value_and_grad(given)
        np.testing.assert_allclose(loss, right[0], rtol=1e-6)
        for name, gradient in right[1].items():
            np.testing.assert_allclose(_dense(gradients[name]), _dense(gradient), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(list(program.run(given)), rows, rtol=1e-6)
    program.run([([1, 2], 0, "beside")])  # which reads more of what a cell yields
    assert program.value_and_grad(ahead)[0] == right[0]
    for given in (mixed, [*program.prepare(examples[:1]), *ahead[1:]]):
        loss, gradients = program.value_and_grad(given)
        np.testing.assert_allclose(loss, right[0], rtol=1e-6)
        for name, gradient in right[1].items():
            np.testing.assert_allclose(_dense(gradients[name]), _dense(gradient), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(list(program.run(given)), rows, rtol=1e-6)
    with pytest.raises(ExampleError, match="example 0: .* found one of another program"):
        growing(engine)[0].run(ahead)


@engines
def test_prepared_examples_with_lists_and_nested_results_fit_a_model_that_reads_more(engine):
    embed = fb.Embedding(9, 2, name="embed")
    word = fb.cell(lambda w: (fb.ops.tanh(embed(w)), embed(w), embed(w) * 2))
    total = fb.cell(lambda states, scale: fb.ops.segment_sum(states) * scale)

    def walk(example: Any) -> Any:
        words, *asked = example
        both = [word(w) for w in words]
        state = total([second for _, second, _ in both], fb.tensor(0.5))
        if "first" in asked:
            state = total([first for first, *_ in both], fb.tensor(3.0))
        return {"state": state, "each": [(second, "b") for _, second, _ in both], "name": "a"}

    program, examples = fb.compile(walk, engine), [[[1, 2, 3]], [[4]], [[5, 6]]]
    ahead, right = program.prepare(examples), list(program.run(examples))
    program.run([[[1, 2], "first"]])
    given = [*ahead[:2], *program.prepare([[[7, 8], "first"]]), ahead[2]]
    for expected, actual in zip(right, [x for n, x in enumerate(program.run(given)) if n != 2], strict=True):
        assert np.array_equal(actual["state"], expected["state"]) and actual["name"] == "a"
        assert [name for _, name in actual["each"]] == ["b"] * len(expected["each"])
        for (one, _), (other, _) in zip(actual["each"], expected["each"], strict=True):
            assert np.array_equal(one, other)


def _dense(gradient: Any) -> Any:
    return gradient.dense() if hasattr(gradient, "dense") else gradient


# -- runs that never end, and runs that are broken off


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore")  # of many rounds, and of forks beside threads
def test_a_process_forks_while_a_long_batch_is_under_way():
    half = fb.cell(lambda x: x * 0.5)

    def walk(rounds: int) -> int:
        x = fb.tensor(1.0)
        for _ in range(rounds):
            x = half(x)
            float(x)
        return rounds

    program = fb.compile(walk, "numpy")
    program.run([3])
    with Continuous(program) as continuous:
        long = continuous.ask(100_000)
        assert continuous.ask(2).result(20) == 2
        for _ in range(3):
            child = os.fork()
            if not child:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(20)  # where it waits for a lock
                other = fb.compile(lambda x: half(fb.tensor(x)), "numpy")
                right = list(program.run([3, 4])) == [3, 4] and list(other.run([2.0])) == [1.0]
                os._exit(0 if right else 1)
            assert os.waitpid(child, 0)[1] == 0
        assert continuous.ask(4).result(20) == 4
        assert not long.done()
        long.cancel()


@pytest.mark.parametrize(
    ("module", "names"), [(runner, ["run_alone"]), (notes, ["__exit__", "end_noting", "session"])]
)
def test_an_exception_that_a_tracer_raises_at_any_line_leaves_no_run_behind(module, names):
    """As a debugger does, or a tool that measures coverage."""
    half = fb.cell(lambda x: x * 0.5)
    program = fb.compile(lambda x: half(fb.tensor(x)), "numpy", threads=1)
    asked = lambda: list(program.run([1.0, 2.0], losses=True))  # noqa: E731
    assert asked() == [0.5, 1.0]

    def broken_off(stop: int) -> bool:
        """Break a run off at a line, counted from the first one; return whether it came so far."""
        lines = 0

        def local(frame: Any, event: str, _: Any) -> Any:
            nonlocal lines
            if event == "line":
                lines += 1
                if lines == stop:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return local

        def watched(frame: Any, *_: Any) -> Any:
            code = frame.f_code
            return local if code.co_filename == module.__file__ and code.co_name in names else None

        before = sys.gettrace()
        sys.settrace(watched)
        try:
            asked()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    stop = 1
    while broken_off(stop):
        while notes.LOCK._is_owned():  # where the line was that of a lock's `with`: it is this thread's still
            notes.LOCK.release()
        assert asked() == [0.5, 1.0], stop
        stop += 1
    assert stop > 3
    gc.collect()
