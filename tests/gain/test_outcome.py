"""Figures that follow from what was measured, by hand; as text and as plain data."""

import json
from dataclasses import replace

from foldbatch.gain.outcome import INFER, TRAIN, BatchFigures, CellFigures, Outcome, Seconds

CELLS = (CellFigures("tree.leaf", 40, 10, 1, (10,), 0), CellFigures("tree.node", 30, 30, 4, (20, 6, 3, 1), 5))


def _batch(size: int, seconds: float) -> BatchFigures:
    known = {
        TRAIN: Seconds(seconds, seconds / 2, 2 * seconds),
        INFER: Seconds(seconds / 4, seconds / 4, seconds),
    }
    new = {task: Seconds(1 / 8 + each.median, each.low, each.high) for task, each in known.items()}
    phases = {"trace": seconds, "forward": 2 * seconds, "backward": seconds}
    return BatchFigures(size, 8 // size, 8, known, new, phases, 80, 40 // size, 5, 99, CELLS)


OUTCOME = Outcome("numpy", 2, 3, (TRAIN, INFER), (_batch(1, 0.5), _batch(8, 0.125)), ("tree.node: a reason",))


def test_gain_is_over_one_at_a_time() -> None:
    first, last = OUTCOME.batches
    assert (OUTCOME.gain(first, TRAIN), OUTCOME.gain(last, TRAIN), OUTCOME.gain(last, INFER)) == (1, 4, 4)
    assert OUTCOME.gain(last, TRAIN, new=True) == 2.5
    assert last.known[TRAIN].rate == 8
    assert last.seconds_a_call(TRAIN) == 0.125 * 8 / 80
    assert [cell.mean_rows for cell in CELLS] == [10, 7.5]
    assert CellFigures("never", 0, 0, 0, (), 0).mean_rows == 0


def test_text_has_a_row_for_each_size_and_cell() -> None:
    rows = [line.split() for line in str(OUTCOME).splitlines()]
    assert ["8", "8", "4.0x", "4", "to", "16", "4", "2.5x", "12500.00"] in rows
    assert ["8", "125000.0", "25%", "250000.0", "50%", "125000.0", "25%", "500000.0"] in rows
    assert ["tree.node", "30", "30", "4", "7.5", "5"] in rows
    assert "5 steps in all; no schedule can do with fewer than 5" in str(OUTCOME)
    assert str(OUTCOME).endswith("What to try\n- tree.node: a reason")
    assert repr(OUTCOME) == "Outcome(batches of 1, 8, backend numpy; print it to read it)"


def test_of_many_cells_the_costly_ones_are_shown() -> None:
    """And the others summed up; the data has all of them."""
    cells = tuple(CellFigures(f"case{k}", 2 * k, 2 * k, k, (2,) * k, 0) for k in range(1, 41))
    outcome = replace(OUTCOME, batches=(replace(OUTCOME.batches[0], cells=cells),))
    text = str(outcome)
    assert text.index("case40 ") < text.index("case31 ")
    assert "case30 " not in text
    assert "and 30 more cells: 930 calls in 465 steps" in text
    assert len(outcome.as_dict()["batches"][0]["cells"]) == 40


def test_all_of_it_is_plain_data() -> None:
    """What follows from other figures is written, too."""
    data = json.loads(OUTCOME.to_json())
    assert data == OUTCOME.as_dict() | {
        key: json.loads(json.dumps(value)) for key, value in OUTCOME.as_dict().items()
    }
    assert data["batches"][1]["gain"] == {TRAIN: 4, INFER: 4}
    assert data["batches"][1]["gain_of_new"][TRAIN] == 2.5
    assert data["batches"][1]["examples_per_second"] == {TRAIN: 8, INFER: 32}
    assert data["batches"][1]["cells"][1]["rows"] == [20, 6, 3, 1]
    assert data["advice"] == ["tree.node: a reason"]
