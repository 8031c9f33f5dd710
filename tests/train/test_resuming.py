"""What a resumed training refuses, and that kills change nothing: each ends as the unbroken one."""

from __future__ import annotations

import os

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import TrainingError
from foldbatch.train import Checkpoints, Trainer, checkpoint
from foldbatch.train.resuming import GROUPS, _grouped
from foldbatch.trees import Vocabulary
from tests.kills import kill
from tests.train.small import DEV, EXAMPLES, trainer


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("what", "kills"), [("saving", 5), ("checkpoint", 25), ("resume", 15)])
def test_kills_change_nothing_and_leave_nothing(what, kills, tmp_path):
    killed, cut = kill(what, tmp_path, kills)
    assert killed == kills
    assert what != "checkpoint" or cut >= 1  # killed in the midst of writing


def text_trainer(folder, words, examples, *, source=Vocabulary, optimizer=None):
    """A training of sums of the vectors of words; `source` makes what numbers them."""
    known = source(words)
    word = fb.InputTransform(lambda w: known[w]) >> fb.Scalar("int32") >> fb.Embedding(9, 2, name="words")
    model = fb.Map(word) >> fb.Sum() >> fb.Linear(1, name="out") >> fb.Function(lambda x: fb.ops.sum(x * x))
    program = fb.compile(model >> fb.Loss(), "numpy", threads=1)
    made = Trainer(program, optimizer or fb.Adam(0.1), batch=2, callbacks=[Checkpoints(folder)])
    return made, examples


def numbered(words):
    return {word: number for number, word in enumerate(words)}


TEXTS = [["a", "gem"], ["a", "bore"], ["gem"], ["bore", "a"]]


@pytest.mark.parametrize("source", [Vocabulary, numbered])
def test_another_vocabulary_is_refused_and_the_row_named(tmp_path, source):
    made, texts = text_trainer(tmp_path, ["a", "gem", "bore"], TEXTS, source=source)
    made.fit(texts, epochs=1)
    other, _ = text_trainer(tmp_path, ["a", "bore", "gem"], TEXTS, source=source)
    with pytest.raises(
        TrainingError, match=r"expected the \d names .*'bore' at row \d, which was the name of row"
    ):
        other.fit(texts, epochs=2, resume=True)
    assert other.epoch == 0
    same, _ = text_trainer(tmp_path, ["a", "gem", "bore"], TEXTS, source=source)
    assert len(same.fit([list(text) for text in texts], epochs=2, resume=True)) == 2


def test_names_of_rows_that_are_numbered_while_training_are_refused_where_they_are_gone(tmp_path):
    """They would be numbered anew, in another order; in the process that knows them training goes on."""

    class Growing(dict):
        def __missing__(self, word):
            return self.setdefault(word, len(self))

    ids = Growing()
    made, texts = text_trainer(tmp_path, None, TEXTS, source=lambda _: ids)
    made.fit(texts, epochs=1)
    fresh, _ = text_trainer(tmp_path, None, TEXTS, source=lambda _: Growing())
    with pytest.raises(TrainingError, match=r"expected the 3 names .*found 2 names, and none for row 2"):
        fresh.fit(texts, epochs=2, resume=True)
    again, _ = text_trainer(tmp_path, None, TEXTS, source=lambda _: ids)
    again.fit(texts, epochs=2, resume=True)


@pytest.mark.parametrize(
    ("examples", "dev", "message"),
    [
        (
            [*EXAMPLES[:7], (EXAMPLES[7][0], 1 - EXAMPLES[7][1]), *EXAMPLES[8:]],
            DEV,
            "the examples .* number 7",
        ),
        (EXAMPLES, DEV[::-1], "the dev examples .* others from number 0"),
        (EXAMPLES, None, "with no dev examples, found one with 6"),
    ],
)
def test_changed_data_are_refused(tmp_path, examples, dev, message):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    other = trainer(tmp_path)
    with pytest.raises(TrainingError, match=message):
        other.fit(examples, dev, epochs=2, resume=True)
    assert (other.epoch, other.steps) == (0, 0)


def test_the_same_data_of_another_form_of_sequence_are_not(tmp_path):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    trainer(tmp_path).fit(iter(EXAMPLES), tuple(DEV), epochs=2, resume=True)


@pytest.mark.parametrize("optimizer", [fb.Adam(0.2), fb.Adam(0.1, weight_decay=0.1)])
def test_another_setting_of_the_optimizer_is_refused(tmp_path, optimizer):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    with pytest.raises(
        TrainingError, match=r"whose optimizer was given (lr 0.2|weight_decay 0.1), found one"
    ):
        trainer(tmp_path, optimizer=optimizer).fit(EXAMPLES, DEV, epochs=2, resume=True)


def test_a_checkpoint_that_does_not_say_what_it_was_trained_on_is_refused(tmp_path):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    state = checkpoint.read(tmp_path / "last.safetensors")
    del state["configuration"]["names"]
    checkpoint.write(tmp_path / "last.safetensors", state)
    with pytest.raises(TrainingError, match="one of an earlier version of foldbatch; start anew"):
        trainer(tmp_path).fit(EXAMPLES, DEV, epochs=2, resume=True)


def test_digests_of_many_examples_are_those_of_groups():
    rows = np.arange(3 * GROUPS - 1, dtype=np.uint64)
    before = _grouped(rows)
    assert len(before) == GROUPS
    rows[[30, 31]] = rows[[31, 30]]
    assert np.flatnonzero(_grouped(rows) != before).tolist() == [10]
    assert _grouped(rows[:GROUPS]) is not before and len(_grouped(rows[:5])) == 5
