"""Continuous batching: requests join and leave between rounds, and none waits for another to end."""

import threading
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.serve.service import Continuous

half = fb.cell(lambda x: (x * 0.5, fb.ops.sum(x)))


def halving(number: float) -> Any:
    x, times = fb.tensor([number, 1.0]), 0
    while True:
        x, total = half(x)
        if float(total) < 2:
            return x, times
        times += 1


def test_a_short_request_overtakes_a_long_one() -> None:
    program = fb.compile(halving, "numpy")
    right = program.run([2.0**60, 8.0, 1.0])
    asked, came = threading.Event(), threading.Event()
    order: list[str] = []

    def round_done(count: int) -> None:
        if not came.is_set():
            asked.set()
            came.wait(10)

    with Continuous(program, round_done=round_done) as continuous:
        long = continuous.ask(2.0**60)
        asked.wait(10)
        short, tiny = continuous.ask(8.0), continuous.ask(1.0)
        for name, answer in (("long", long), ("short", short), ("tiny", tiny)):
            answer.add_done_callback(lambda _, name=name: order.append(name))
        came.set()
        found = [answer.result(20) for answer in (long, short, tiny)]
    assert order == ["tiny", "short", "long"]
    for (x, times), (y, right_times) in zip(found, right, strict=True):
        assert times == right_times
        np.testing.assert_array_equal(x, y)


def test_an_error_is_the_answer_of_its_request_alone() -> None:
    with Continuous(fb.compile(halving, "numpy")) as continuous:
        good, bad, other = [continuous.ask(x) for x in (4.0, "four", 16.0)]
        assert (good.result(20)[1], other.result(20)[1]) == (2, 4)
        with pytest.raises(fb.errors.WalkError, match="expected numbers"):
            bad.result(20)
        assert continuous.ask(4.0).result(20)[1] == 2


table = fb.Embedding(5, 3, name="table")


@fb.cell
def read(first: "int32", states: list["float32[3]"], second: "int32"):  # noqa: F821
    return table(first) + table(second) + fb.ops.segment_sum(states)


def reading(example: list[list[int]]) -> Any:
    states: list[Any] = []
    for first, second in example:
        states.append(read(first, states[-2:], second))
        float(fb.ops.sum(states[-1]))
    return fb.ops.sum(states[-1])


def test_a_datum_that_does_not_fit_is_the_answer_of_its_request_alone() -> None:
    """Of the call that it is for nothing stays: neither its row, nor elements of lists, nor other data."""
    program = fb.compile(reading, "numpy")
    good, bad = [[1, 2], [3, 4], [0, 1]], [[1, 2], [3, 4], [0, 7], [2, 2]]
    alone = program.run([good])
    found = program.run([good, bad, good], return_exceptions=True)
    with Continuous(program) as continuous:
        answers = [continuous.ask(example) for example in (good, bad, good)]
        for error in (found[1], answers[1].exception(20)):
            assert isinstance(error, fb.errors.ExampleError)
            assert "at example 1: expected int32 from 0 to 4, found int 7" in str(error)
        values = [found[0], found[2], answers[0].result(20), answers[2].result(20)]
    np.testing.assert_allclose(values, [alone[0]] * 4, rtol=1e-6)


def test_few_at_once_and_values_without_room_answer_all() -> None:
    counts: list[int] = []
    program = fb.compile(halving, "numpy")
    right = [times for _, times in program.run([2.0**n for n in range(20)])]
    room = mock.patch("foldbatch.serve.service.MAX_VALUE_BYTES", 3000)
    with room, Continuous(program, most=2, round_done=counts.append) as continuous:
        answers = [continuous.ask(2.0**n) for n in range(20)]
        assert [answer.result(20)[1] for answer in answers] == right
    assert max(counts) <= 2


def endless(number: float) -> Any:
    x = fb.tensor([number, 1.0])
    while True:
        x, total = half(x)
        if float(total) == -1:
            return x


def test_what_nobody_waits_for_leaves_the_batch() -> None:
    """While others go on; and what had not joined yet never does."""
    counts: list[int] = []
    with Continuous(fb.compile(endless, "numpy"), most=2, round_done=counts.append) as continuous:
        long, short, never = continuous.ask(0.0), continuous.ask(-2.0), continuous.ask("no number")
        assert never.cancel()
        assert short.result(20)[0] == -1.0
        while not counts or counts[-1] != 1:
            pass
        assert long.cancel()
        assert continuous.ask(-2.0).result(20)[0] == -1.0
    assert counts[-1] == 0


@pytest.mark.parametrize("last", range(8))
def test_a_request_that_leaves_when_it_has_ended_spoils_no_other(last: int) -> None:
    asked, answers, rounds = threading.Event(), list[Any](), list[int]()

    def round_done(count: int) -> None:
        asked.wait(10)
        rounds.append(count)
        if len(rounds) == last:
            answers[1].cancel()

    with Continuous(fb.compile(halving, "numpy"), round_done=round_done) as continuous:
        answers += [continuous.ask(2.0**9), continuous.ask(8.0)]
        asked.set()
        assert answers[0].result(20)[1] == 9


def test_a_program_of_a_block_is_refused() -> None:
    with pytest.raises(fb.errors.BlockTypeError, match="expected a program of a plain function"):
        Continuous(fb.compile(fb.Scalar(), "numpy"))


def test_requests_draw_anew_whether_they_join_a_batch_or_begin_one() -> None:
    noisy = fb.cell(lambda x: x + fb.ops.random(()))

    def walk(number: float) -> float:
        return float(noisy(fb.tensor(number)))

    with Continuous(fb.compile(walk, "numpy")) as continuous:
        answers = [continuous.ask(0.0).result(20) for _ in range(3)]  # a batch each
        answers += [answer.result(20) for answer in [continuous.ask(0.0) for _ in range(3)]]
    assert len({*answers}) == 6
