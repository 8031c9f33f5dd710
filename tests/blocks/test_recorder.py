"""Recorders: what examples note ends up in arrays, each example's part known; `test_tracer` runs whole programs."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.blocks.recorder import Recorder
from foldbatch.model.columns import BadDataError

LOWERED = fb.compile(fb.Map(fb.Scalar("int32") >> fb.Embedding(4, 2)) >> fb.Sum(), "reference").lowered


def recorder(*, careful: bool = False) -> Recorder:
    return Recorder(LOWERED.model, [], [], 10, LOWERED.model.bounds, careful=careful)


def note(recorder: Recorder, words: list[object]) -> None:
    """Do what the tracing program does: a call for each word, and one that sums them up."""
    call = recorder.begin()["call"]
    (feed,) = [name for name in recorder.bindings if name.startswith("feed") and "feeds" not in name]
    numbers = []
    for word in words:
        numbers.append(call())
        recorder.bindings[feed.replace("feed", "row")[: len("row0")]]((numbers[-1],))
        recorder.bindings[feed](word)
    (elements,) = [name for name in recorder.bindings if name.startswith("elements")]
    total = call()
    recorder.bindings[f"row{elements[len('elements') :].split('_')[0]}"]((total, len(numbers)))
    recorder.bindings[elements](numbers)
    recorder.end((total,))


def test_each_example_counts_its_own_calls_elements_and_values():
    record = recorder()
    for words in ([1, 2, 3], [], [0]):
        note(record, words)
    made = record.record()
    assert made.values.tolist() == [4, 1, 2]
    assert sorted(made.counts.T.tolist()) == [[1, 1, 1], [3, 0, 1]]
    assert made.lengths.tolist() == [[3], [0], [1]]
    assert made.results == [(3,), (0,), (1,)]
    (words,) = [feed.tolist() for feeds in made.feeds for feed in feeds]
    assert words == [1, 2, 3, 0]
    assert record.ended == 3
    assert record.first_bad() is None


def test_the_first_example_with_a_bad_datum_is_found():
    record = recorder()
    for words in ([1], [2, 4], ["three"]):
        note(record, words)
    with pytest.raises(BadDataError):
        record.record()
    number, error = record.first_bad()
    assert (number, error.found) == (1, "int 4")


def test_a_careful_recorder_refuses_a_datum_at_once():
    with pytest.raises(BadDataError, match="from 0 to 3"):
        note(recorder(careful=True), [1, 4])
