"""Costs of a few hundred orders."""

import json

import pytest

import foldbatch as fb

LAMP = {"kind": "lamp", "weight": 1.5}


@pytest.fixture(scope="module")
def records(load):
    return load("records/json_records")


def order(**changes):
    customer = {"address": {"country": "DE", "floor": None}, "ratings": []}
    return {"customer": customer, "items": [], "tags": [], **changes}


def test_orders_are_written_as_lines_with_their_costs(records, tmp_path):
    records.write(tmp_path / "orders", 20)
    parts = [
        (tmp_path / "orders" / f"{part}.jsonl").read_text().splitlines() for part in ("train", "dev", "test")
    ]
    assert [len(lines) for lines in parts] == [20, 2, 2]
    lines = [json.loads(line) for part in parts for line in part]
    pairs = [(json.loads(text), paid) for text, paid in records.data(24)]
    assert lines == [{**order, "cost": paid} for order, paid in pairs]


def test_a_kind_that_is_unknown_is_named_with_its_place(records):
    text = json.dumps(order(items=[LAMP, {"kind": "sofa"}]))
    with pytest.raises(fb.errors.ExampleError, match=r"(?s)\['items'\]\[1\].*'book', 'lamp', 'rug'.*'sofa'"):
        fb.compile(records.model(4)).run([(text, 0.0)])


def test_it_learns_what_flat_rows_do_not_tell(records):
    found = records.data(2200)
    program = fb.compile(records.model(32))
    records.train(program, found[:2000], epochs=4)
    paid = [euros for _, euros in found[2000:]]
    assert records.explained(list(program.run(found[2000:])), paid) > 0.85
