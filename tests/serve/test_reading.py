"""Bodies become examples; a fault in one is told of it alone."""

import json

import msgspec
import pytest

from foldbatch.errors import FoldbatchError, ReadError
from foldbatch.recipes.configuration import Configuration
from foldbatch.serve.service import Limits

predict = pytest.importorskip("foldbatch.serve.predict", reason="HTTP needs foldbatch[serve]")
JSON, read_body = predict.JSON, predict.read_body
RefusedError = predict.RefusedError
LIMITS = Limits()
GOOD = "(1 (1 good) (1 film))"


def settings(format="sst", model="tree_lstm"):
    return msgspec.convert({"data": {"format": format}, "model": {"name": model}}, Configuration)


def read(body, kind=JSON, format="sst", model="tree_lstm", limits=LIMITS):
    data = (
        body
        if isinstance(body, bytes)
        else body.encode()
        if isinstance(body, str)
        else json.dumps(body).encode()
    )
    return read_body(data, kind, settings(format, model), limits)


def told(each):
    return str(each) if isinstance(each, FoldbatchError) else each.structure


def test_examples_are_texts_or_lists_of_words():
    texts, ask = read({"examples": [GOOD, ["good", "film"]], "nodes": True, "deadline": 2})
    assert [each.size for each in texts] == [3, 2] and ask.nodes and ask.deadline == 2


def test_one_bad_example_is_refused_alone_with_its_number():
    body = {"examples": [GOOD, "(1 (1 good)", GOOD, "(1 (1 a) (1 b) (1 c))"]}
    good, bad, also_good, ternary = read(body)[0]
    assert good.structure == also_good.structure
    assert bad.where.startswith("example 1:1") and "example 1:1:1" in bad.expected
    assert str(ternary).startswith("example 3: expected two children at each inner node, found a node with 3")


@pytest.mark.parametrize(
    "value, message",
    [
        (5, "example 0: expected a text or a list of words, found int 5"),
        (["a", 5], "example 0: expected a text or a list of words"),
        ("", "example 0: expected one example, found none"),
        (f"{GOOD} {GOOD}", "example 0: expected one example, found several in one text"),
        (["a"] * 9, "example 0: expected 5 nodes or fewer, found 9"),
        ("(1 (1 (1 (1 a))))", "example 0: expected two children"),
    ],
)
def test_what_is_no_example_of_the_format_is_refused(value, message):
    (refused,), _ = read({"examples": [value]}, limits=Limits(nodes=5))
    assert str(refused).startswith(message)


def test_depth_is_limited_of_trees_and_of_records():
    limits = Limits(depth=2)
    (tree,), _ = read(
        {"examples": ["(1 (1 (1 (1 a))))"]}, format="brackets", model="child_sum", limits=limits
    )
    records = {"examples": [{"a": [1]}, {"a": [{"b": 1}]}]}
    record, deep = read(records, JSON, "jsonlines", "json", limits)[0]
    assert record.structure == {"a": [1]} and record.size == 2
    for refused in (tree, deep):
        assert isinstance(refused, RefusedError) and "expected 2 levels or fewer, found 3" in str(refused)


def test_a_function_has_its_name():
    text = "def read_line(file):\n    return file.readline()\n"
    (one,), _ = read({"examples": [text]}, JSON, "functions", "child_sum")
    assert "read_line" in one.name
    several, broken = read({"examples": [text * 2, "def f(:\n"]}, JSON, "functions", "child_sum")[0]
    assert "found several" in str(several) and isinstance(broken, FoldbatchError)


@pytest.mark.parametrize(
    "body, kind, error, message",
    [
        (b"{", JSON, ReadError, "expected a JSON object with examples"),
        (b'{"examples": [], "extra": 1}', JSON, ReadError, "unknown field `extra`"),
        (b'{"examples": []}', JSON, ReadError, "expected an example or more, found none"),
        (b'{"examples": ["\xff"]}', JSON, ReadError, "body: expected"),
        (b'{"examples": ' + b"[" * 100_000, JSON, ReadError, "body: expected"),
        (b"[1]", "application/xml", RefusedError, "found application/xml"),
        (b'{"examples": [1,2,3,4,5,6,7,8,9]}', JSON, RefusedError, "found more"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_as_a_whole(body, kind, error, message):
    with pytest.raises(error, match="body: ") as caught:
        read(body, kind, limits=Limits(examples=8))
    assert message in str(caught.value)
