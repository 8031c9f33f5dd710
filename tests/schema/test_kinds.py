"""How schemas are printed."""

from foldbatch.schema import infer, kinds


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


def test_of_many_categories_some_are_printed():
    values = [str(i) for i in range(9) for _ in range(2)]
    assert (
        next(kinds.lines(infer(values).root))
        == "category (18 values): '0' 2, '1' 2, '2' 2, '3' 2, '4' 2 and 4 more"
    )


def test_keys_that_are_data_are_printed_apart_from_their_values():
    lines = str(infer([{f"user{i}-{j}": j for j in range(2)} for i in range(30)])).splitlines()
    assert lines[0] == "dictionary (30 values): 2 keys"
    assert lines[1].startswith("  key: text (60 values): 7 to 8 characters, such as 'user0-0'")
    assert lines[2] == "  value: number (60 values): whole, 0 to 1, mean 0.5, deviation 0.5"
