"""What a resumed training refuses, and that kills change nothing: each ends as the unbroken one."""

import math
import os

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.pending import Pending
from foldbatch.errors import ReadError, TrainingError
from foldbatch.system import files
from foldbatch.train import Checkpoints, Trainer
from foldbatch.train.resuming import read_state, write_state
from foldbatch.trees import Vocabulary
from tests.kills import kill
from tests.train.small import DEV, EXAMPLES, trainer


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("what", "kills"), [("checkpoint", 12), ("resume", 6)])
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
    made = Trainer(program, optimizer or fb.Adam(0.1), batch_size=2, callbacks=[Checkpoints(folder)])
    return made, examples


def numbered(words):
    return {word: number for number, word in enumerate(words)}


TEXTS = [["a", "gem"], ["a", "bore"], ["gem"], ["bore", "a"]]


@pytest.mark.parametrize("source", [Vocabulary, numbered])
def test_another_numbering_of_words_is_refused(tmp_path, source):
    made, texts = text_trainer(tmp_path, ["a", "gem", "bore"], TEXTS, source=source)
    made.fit(texts, epochs=1)
    other, _ = text_trainer(tmp_path, ["a", "bore", "gem"], TEXTS, source=source)
    with pytest.raises(
        TrainingError, match="other traces here from number 0 on; .* words numbered as they were"
    ):
        other.fit(texts, epochs=2, resume=True)
    assert other.epoch == 0
    same, _ = text_trainer(tmp_path, ["a", "gem", "bore"], TEXTS, source=source)
    assert len(same.fit([list(text) for text in texts], epochs=2, resume=True)) == 2


def test_words_that_are_numbered_while_training_are_numbered_alike_in_a_process_of_its_own(tmp_path):
    class Growing(dict):
        def __missing__(self, word):
            return self.setdefault(word, len(self))

    def made(folder):
        return text_trainer(tmp_path / folder, None, TEXTS, source=lambda _: Growing())

    whole, texts = made("whole")
    whole.fit(texts, epochs=2)
    made("part")[0].fit(texts, epochs=1)
    resumed, _ = made("part")
    resumed.fit(texts, epochs=2, resume=True)
    for name, array in whole.program.params.items():
        np.testing.assert_array_equal(resumed.program.params[name], array)


def test_functions_that_draw_random_numbers_are_not_taken_for_others(tmp_path):
    dice = np.random.default_rng(0)
    for epochs in (1, 2):
        made, texts = text_trainer(tmp_path, None, TEXTS, source=lambda _: Random(dice))
        assert len(made.fit(texts, epochs=epochs, resume=True)) == epochs


class Random:
    """Numbers words anew whenever it is asked."""

    def __init__(self, dice):
        self.dice = dice

    def __getitem__(self, word):
        return int(self.dice.integers(9))


@pytest.mark.parametrize(
    ("examples", "dev", "message"),
    [
        (
            [*EXAMPLES[:7], (EXAMPLES[7][0], 1 - EXAMPLES[7][1]), *EXAMPLES[8:]],
            DEV,
            "found other examples here from number 7 on",
        ),
        (EXAMPLES, DEV[::-1], "found other validation examples here from number 0 on"),
        (EXAMPLES, None, "number of validation examples 6 in the checkpoint, 0 here"),
    ],
)
def test_changed_data_are_refused(tmp_path, examples, dev, message):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    other = trainer(tmp_path)
    with pytest.raises(TrainingError, match=message):
        other.fit(examples, dev, epochs=2, resume=True)
    assert (other.epoch, other.steps) == (0, 0)


@pytest.mark.parametrize("optimizer", [fb.Adam(0.2), fb.Adam(0.1, weight_decay=0.1)])
def test_another_setting_of_the_optimizer_is_refused(tmp_path, optimizer):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    with pytest.raises(
        TrainingError, match="optimizer's (lr 0.1|weight_decay 0.0) in the checkpoint, 0.[12] here"
    ):
        trainer(tmp_path, optimizer=optimizer).fit(EXAMPLES, DEV, epochs=2, resume=True)


def test_a_checkpoint_of_before_there_was_a_setting_goes_on_with_its_default(tmp_path):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    state = read_state(tmp_path / "last.safetensors")
    del state["record"]["optimizer's unused"]
    write_state(tmp_path / "last.safetensors", state)
    with pytest.raises(TrainingError, match="optimizer's unused 'zero' in the checkpoint, 'skip' here"):
        skipping = fb.Adam(0.1, unused="skip")
        trainer(tmp_path, optimizer=skipping).fit(EXAMPLES, DEV, epochs=2, resume=True)
    assert trainer(tmp_path).fit(EXAMPLES, DEV, epochs=2, resume=True)


def test_a_checkpoint_that_does_not_say_what_it_was_trained_on_is_refused(tmp_path):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    state = read_state(tmp_path / "last.safetensors")
    del state["record"]
    write_state(tmp_path / "last.safetensors", state)
    with pytest.raises(TrainingError, match="one of an earlier version of foldbatch; start anew"):
        trainer(tmp_path).fit(EXAMPLES, DEV, epochs=2, resume=True)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *(("epoch", -1), ("steps_drawn", [1]), ("position/loss", "x"), ("history", [1]), ("record", 5)),
        *(("optimizer/lr", {}), ("optimizer/steps\0out.bias", -1), ("parameters", []), ("callbacks/Own", 1)),
        *(("callbacks/Checkpoints/best_figure", "x"), ("callbacks/EarlyStopping/waited", [])),
        ("callbacks/AverageWeights/averages/out.bias", np.ones(5)),
    ],
)
def test_a_checkpoint_that_was_edited_is_one_error(tmp_path, place, value):
    average = fb.train.AverageWeights(0.9)
    trainer(tmp_path, callbacks=[average]).fit(EXAMPLES, DEV, epochs=1)
    state = part = read_state(tmp_path / "last.safetensors")
    *outer, last = place.split("/")
    for name in outer:
        part = part[name]
    part[last.replace("\0", "/")] = value
    write_state(tmp_path / "last.safetensors", state)
    with pytest.raises(fb.errors.FoldbatchError):
        trainer(tmp_path, callbacks=[average]).fit(EXAMPLES, DEV, epochs=2, resume=True)


def test_a_state_comes_back(tmp_path):
    state = {
        "numbers": [0, -1, 2**63, 0.1, -0.0, 5e-324, math.inf, -math.inf, True, None],
        "text": {"": "", "$": "a", "é": "\n"},
        "arrays": {"a": {"b": np.zeros(())}, "a/b": np.arange(6)[::2], "t": np.ones((2, 3), np.float32).T},
        "list": [np.zeros((0, 2)), [[]], {}],
    }
    write_state(tmp_path / "x", state)
    read = read_state(tmp_path / "x")
    np.testing.assert_equal(read, state)
    assert math.copysign(1, read["numbers"][4]) == -1
    assert read["arrays"]["t"].dtype == np.float32
    assert "arrays/t" in files.read(tmp_path / "x", "checkpoint", "")[0]


def test_numbers_of_others_become_plain(tmp_path):
    given = {"x": [np.float32(0.5), np.int64(3), np.bool_(True), Pending(lambda: 1.5), math.nan, (1, 2)]}
    write_state(tmp_path / "x", given)
    read = read_state(tmp_path / "x")["x"]
    assert [type(x) for x in read] == [float, int, bool, float, float, list]
    assert read[:4] == [0.5, 3, True, 1.5]
    assert math.isnan(read[4])


@pytest.mark.parametrize("value", [object(), {1: 2}, b"bytes", {3}, 1j])
def test_what_is_no_plain_data_is_refused(tmp_path, value):
    with pytest.raises(TrainingError, match="checkpoint at callbacks/Own/x/0: expected plain data"):
        write_state(tmp_path / "x", {"callbacks": {"Own": {"x": [value]}}})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_none_is_refused(tmp_path):
    files.write(tmp_path / "x", "model", {}, {})
    with pytest.raises(ReadError, match="a checkpoint that foldbatch wrote, found a model"):
        read_state(tmp_path / "x")
    files.write(tmp_path / "x", "checkpoint", {}, {"w": {"$array": "w"}})
    with pytest.raises(ReadError, match="does not fit its arrays"):
        read_state(tmp_path / "x")


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    folder, link, pipe, lost = (tmp_path / name for name in ("folder", "link", "pipe", "lost"))
    folder.mkdir()
    link.symlink_to(link)
    os.mkfifo(pipe)
    lost.symlink_to(tmp_path / "none")
    for path in (folder, link, pipe, lost):
        with pytest.raises(ReadError, match=f"{path}: expected a file, found a folder, a pipe"):
            read_state(path)
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "none")
