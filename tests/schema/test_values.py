"""Values of Python in records: read as what they stand for, or refused, and never taken for missing."""

import json
import pickle
import warnings
from collections import OrderedDict, deque, namedtuple
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import BlockValueError, ExampleTypeError, UnlikeSamplesWarning
from foldbatch.model.columns import BadDataError
from foldbatch.schema import Schema, infer, kinds, reading
from foldbatch.schema.json_schema import json_schema
from foldbatch.schema.moments import moment_of
from foldbatch.schema.reading import ANYWHERE
from foldbatch.schema.values import plain_value


class Row:
    """Speaks what a row of a DataFrame of pandas speaks."""

    iloc = None

    def __init__(self, fields):
        self.index = list(fields)
        self.values = list(fields.values())

    def tolist(self):
        return self.values


class Scalar:
    """Speaks what a scalar of Arrow speaks."""

    def __init__(self, value):
        self.value = value

    def as_py(self):
        return self.value


class Slots:
    __slots__ = ("age", "kind")

    def __init__(self, age, kind):
        self.age = age
        self.kind = kind


class Word(str):
    __slots__ = ()


class Size(IntEnum):
    SMALL = 3


class Colour(Enum):
    RED = "cat"


def spellings_of(value):
    """List what stands for the same value as a value of JSON."""
    made = [lambda x: x, Scalar, lambda x: Enum("Made", {"ONE": x}).ONE]
    match value:
        case None:
            missing = [float("nan"), np.float32("nan"), Decimal("NaN"), np.datetime64("NaT"), np.ma.masked]
            return [*made[:2], *(lambda _, x=x: x for x in [*missing, np.timedelta64("NaT"), msgspec.UNSET])]
        case bool():
            return [*made, np.bool_, np.array]
        case int():
            return [*made, np.int64, Decimal, np.array, type("Int", (int,), {})]
        case float():
            return [*made, np.float64, Fraction, np.array, np.longdouble, lambda x: np.array([x])[0]]
        case str():
            whole = value.isprintable()  # NumPy cuts NUL characters off
            return [*made, Word, lambda x: x.encode(), *([np.str_] if whole else [])]
        case list():
            arrays = [np.array] if {*map(type, value)} in ({int}, {float}, {str}) else []
            return [*made, tuple, deque, *arrays]
        case dict():
            keys = list(value)
            classes = [
                lambda x: namedtuple("Record", keys)(**x),  # noqa: PYI024 - its fields are drawn
                lambda x: make_dataclass("Record", keys)(**x),
                lambda x: msgspec.defstruct("Record", keys)(**x),
                lambda x: SimpleNamespace(**x),
                Row,
            ]
            return [*made, OrderedDict, MappingProxyType, *(classes if keys else [])]
    raise AssertionError


def spelled(draw, value):
    if isinstance(value, list):
        items = [spelled(draw, item) for item in value] if draw(st.booleans()) else value
        return draw(st.sampled_from(spellings_of(value)))(items) if items is value else items
    if isinstance(value, dict):
        fields = {name: spelled(draw, inner) for name, inner in value.items()}
        return draw(st.sampled_from(spellings_of(value)))(fields)
    return draw(st.sampled_from(spellings_of(value)))(value)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
NUMBERS = st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6)
RECORDS = st.fixed_dictionaries(
    {
        "age": NUMBERS | st.none(),
        "kind": st.sampled_from(["cat", "dog"]) | st.none(),
        "name": TEXTS,
        "ok": st.booleans() | st.none(),
        "sizes": st.lists(st.integers(0, 9), max_size=3) | st.none(),
        "parts": st.lists(st.fixed_dictionaries({"n": NUMBERS, "tag": TEXTS}), max_size=2),
        "mixed": st.integers(0, 5) | st.sampled_from(["a", "b"]) | st.booleans(),
    }
)
SAMPLES = [
    {
        "age": n,
        "kind": "cat" if n % 2 else "dog",
        "name": f"name {n}",
        "ok": n % 3 == 0,
        "sizes": [n % 5] * (n % 3),
        "parts": [{"n": n / 7, "tag": f"tag {n}"}] * (n % 3),
        "mixed": [n, "a", True][n % 3],
    }
    for n in range(30)
]


@pytest.fixture(scope="module")
def program():
    return fb.compile(infer(SAMPLES).block(4), backend="numpy", seed=1)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_record_reads_as_its_plain_spelling(program, data):
    plain = data.draw(RECORDS)
    other = spelled(data.draw, plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, expected = program.run([other, plain])
    assert (found == expected).all()
    assert infer([other]).to_plain() == infer([plain]).to_plain()
    assert infer(SAMPLES).compare(other) == infer(SAMPLES).compare(plain)


MOMENT = datetime(2024, 5, 6, 7, 8, 9)  # noqa: DTZ001 - most data have no zone


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (MOMENT, "2024-05-06T07:08:09"),
        (MOMENT.replace(tzinfo=UTC, microsecond=5), "2024-05-06T07:08:09.000005+00:00"),
        (date(2024, 5, 6), "2024-05-06"),
        (time(7, 8), "07:08:00"),
        (np.datetime64("2024-05-06"), "2024-05-06"),
        (np.datetime64(MOMENT, "s"), "2024-05-06T07:08:09"),
        (np.datetime64(MOMENT, "ns"), "2024-05-06T07:08:09"),
        (np.datetime64("2024-05-06T07:08:09.000000001"), "2024-05-06T07:08:09.000000001"),
        (timedelta(minutes=1, milliseconds=1), 60.001),
        (np.timedelta64(90, "s"), 90.0),
        (np.array([MOMENT], "M8[s]"), [np.datetime64(MOMENT, "s")]),
        (Decimal("1e400"), 1.7976931348623157e308),
        (Decimal(3), 3),
        (Fraction(10**400), 1.7976931348623157e308),
        (np.float16(0.5), 0.5),
        (np.ma.masked_array([1, 2], [0, 1]), [1, None]),
        (np.array(None), None),
        (np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])[0], {"a": 1, "b": 2.5}),
        (range(3), [0, 1, 2]),
        (b"caf\xc3\xa9", "café"),
        (Size.SMALL, 3),
        (Colour.RED, "cat"),
        (PurePosixPath("a/b"), "a/b"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Slots(1, "cat"), {"age": 1, "kind": "cat"}),
        (Row({0: 1, 1: 2}), [1, 2]),
        (SimpleNamespace(a=1, _b=2), {"a": 1}),
        (
            type("Sized", (), {"age": 3, "wide": property(lambda self: 4), "LIMIT": 9})(),
            {"age": 3, "wide": 4},
        ),
    ],
)
def test_what_a_value_stands_for(value, plain):
    found = plain_value(value)
    assert found == plain
    assert type(found) is type(plain)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset(),
        iter([1]),
        1j,
        np.complex64(1),
        b"\xff",
        len,
        int,
        json,
        object(),
        lambda: 1,
        np.timedelta64(1, "M"),
        np.timedelta64(1),
        fb.trees.parse_brackets("(S a)"),
        fb.trees.parse_brackets("(S a)").root,
        Row({"a": 1}).tolist,
    ],
)
def test_what_stands_for_nothing_is_refused_by_all_with_its_place(program, value):
    with pytest.raises(BadDataError):
        plain_value(value)
    with pytest.raises(ExampleTypeError, match=r"samples\[1\]\['parts'\]\[0\]\['n'\]: expected .*; "):
        infer([SAMPLES[0], {"parts": [{"n": value}]}])
    with pytest.raises(
        ExampleTypeError, match=r"at example 1 \['parts'\]\[0\]\['n'\]: expected .*, found .*; "
    ):
        program.run([SAMPLES[0], {**SAMPLES[0], "parts": [{"n": value, "tag": "a"}]}])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": "36"}, "age: expected a number, as in the samples, found str '36'; it is not read; convert"),
        ({"age": True}, "age: expected a number, as in the samples, found bool True"),
        ({"ok": 1}, "ok: expected a flag, as in the samples, found int 1"),
        ({"sizes": ["3"]}, r"sizes\[\]: expected a number, as in the samples, found str '3'"),
        ({"mixed": [1]}, "mixed: expected a flag or a number or a text, as in the samples, found list of 1"),
        ({"aeg": 3}, r"record: expected fields that the samples had, found 'aeg' \(did you mean 'age'\?\)"),
        ({"parts": {"n": 3}}, "parts: expected a list, as in the samples, found dict with keys"),
    ],
)
def test_what_the_samples_did_not_have_is_warned_of_once(change, message):
    program = fb.compile(infer(SAMPLES).block(2), backend="numpy")
    record = {**SAMPLES[4], **change}
    with pytest.warns(UnlikeSamplesWarning, match=f"^{message}") as caught:
        program.run([record])
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run([record, {**record}])
        program.run([{**SAMPLES[4], "age": None, "sizes": [], "parts": [{}]}])


def test_a_filter_makes_errors_of_warnings_each_time():
    program = fb.compile(infer(SAMPLES).block(2), backend="numpy")
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(
                fb.errors.ExampleError, match=r"at example 1 .*found UnlikeSamplesWarning: age: "
            ):
                program.run([SAMPLES[4], {**SAMPLES[4], "age": "36"}])


def test_names_of_fields_may_hold_half_a_surrogate_pair(tmp_path):
    program = fb.compile(infer([{"\udc00": n, "s": "\ud83d"} for n in range(4)]).block(2), "numpy")
    assert "\\udc00.weight" in program.params
    program.save(tmp_path / "model")
    record = {"\udc00": 3, "s": "\ud83d"}
    assert np.array_equal(fb.load(tmp_path / "model", backend="numpy").run([record]), program.run([record]))


def test_values_where_the_samples_had_none_are_warned_of():
    program = fb.compile(infer([{"a": 1, "none": None, "empty": [], "odd": {"x": None}}]).block(2), "numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run([{"a": 1, "none": None, "empty": [None, []], "odd": {}}])
    for name, value in (("none", 3), ("empty", [[5]]), ("odd", {"x": 1})):
        with pytest.warns(
            UnlikeSamplesWarning, match=f"expected no value, as in the samples, found {name}: "
        ):
            program.run([{"a": 1, name: value}])


def test_fields_that_are_ignored_are_not_warned_of_and_names_are_asked_for():
    schema = infer([{"a": 1}, {"a": 2}])
    program = fb.compile(schema.block(2, ignored=("label",)), "numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run([{"a": 1, "label": "yes"}])
    for ignored in ("label", [1]):
        with pytest.raises(BlockValueError, match="expected ignored as names of fields"):
            schema.block(2, ignored=ignored)


def test_a_saved_block_warns_and_reads_as_the_one_that_was_saved(tmp_path, program):
    program.save(tmp_path / "model")
    loaded = fb.load(tmp_path / "model", backend="numpy")
    (expected,) = program.run([SAMPLES[7]])
    assert (loaded.run([SAMPLES[7]])[0] == expected).all()
    with pytest.warns(UnlikeSamplesWarning, match="^age: expected a number"):
        loaded.run([{**SAMPLES[7], "age": "7"}])
    place = pickle.loads(pickle.dumps(reading.Place("a", ("number",), ("b",))))
    assert place == reading.Place("a", ("number",), ("b",))


def test_models_that_know_no_places_read_values_alike_and_warn_of_nothing(tmp_path):
    """A block as foldbatch 0.2 saved them: its functions are called with the value first."""
    number = fb.InputTransform(partial(reading.as_number, mean=3.0, deviation=2.0)) >> fb.Optional(
        fb.Vector(1)
    )
    flag = fb.InputTransform(reading.as_flag) >> fb.Optional(fb.Scalar("int32") >> fb.Embedding(2, 1))
    record = fb.InputTransform(partial(reading.as_fields, names=("a", "b")))
    fields = fb.Record({"a": number, "b": flag}) >> fb.Concat()
    fb.compile(record >> fb.Optional(fields), "numpy").save(tmp_path / "old")
    loaded = fb.load(tmp_path / "old", backend="numpy")
    values = loaded.run(
        [{"a": np.int8(5), "b": np.True_, "c": 1}, {"a": 5, "b": True}, {"a": "5", "b": None}]
    )
    assert (values[0] == values[1]).all()
    assert values[1][0] == 1
    assert not values[2].any()


def test_a_comparison_names_fields_and_kinds_that_the_samples_did_not_have():
    schema = infer([{"a": 1, "d": {f"k{i}": i}, "l": [1, "x"]} for i in range(40)])
    same = schema.compare({"a": np.int8(2), "d": {"new": 3}, "l": []})
    assert (same.fields, same.kinds, same.read) == ((), (), 3)
    odd = schema.compare({"b": 1, "a": "1", "d": {"new": "3"}, "l": [True, None]})
    assert odd.fields == ("b",)
    assert set(odd.kinds) == {("a", "text"), ("d.values", "text"), ("l[]", "flag")}
    assert infer([[1, 2]]).compare([3]).read == 1
    assert infer([[1, 2]]).compare("3").read == 0


def test_texts_of_numbers_and_of_dates_in_other_forms_are_named():
    samples = [
        {
            "when": f"{n:02}/05/2024",
            "at": f"{n}:30",
            "iso": f"2024-05-{n:02}",
            "sum": f"{n}.50",
            "code": f"A{n}",
            "in": [{"t": f"{n}%"}],
        }
        for n in range(1, 9)
    ]
    assert infer(samples).texts_of_values() == ["when", "at"]  # those that spell numbers are read as such
    assert Schema.from_plain(infer(["a 1", "b"]).to_plain()).texts_of_values() == []


def test_values_and_rows_of_pandas_are_what_they_stand_for(program):
    pd = pytest.importorskip("pandas")
    assert [plain_value(x) for x in (pd.NA, pd.NaT, pd.Timestamp(MOMENT), pd.Timedelta("90s"))] == [
        None,
        None,
        "2024-05-06T07:08:09",
        90.0,
    ]
    assert plain_value(pd.array([1, None], dtype="Int64")) == [1, pd.NA]
    frame = pd.DataFrame(SAMPLES)
    expected = program.run(SAMPLES)
    forms = [frame, frame.to_dict("records"), [row for _, row in frame.iterrows()]]
    forms.append(list(frame.itertuples(index=False)))
    for form in forms:
        assert np.array_equal(program.run(form), expected)
        assert infer(form).to_plain() == infer(SAMPLES).to_plain()
    frame = pd.DataFrame({"age": [1.5, None], "kind": ["cat", None], "ok": pd.array([True, None], "boolean")})
    assert np.array_equal(program.run(frame), program.run([{"age": 1.5, "kind": "cat", "ok": True}, {}]))


def test_scalars_of_arrow_are_what_they_stand_for():
    pa = pytest.importorskip("pyarrow")
    values = [1, 1.5, "a", True, None, [1, 2], {"a": 1}]
    assert [plain_value(pa.scalar(value)) for value in values] == values
    assert plain_value(pa.array([1, None])) == [1, None]
    assert plain_value(pa.scalar(MOMENT)) == "2024-05-06T07:08:09"


def day(number, **of_time):
    return datetime(2024, 5, number, **of_time)  # noqa: DTZ001 - most data have no zone


def test_dates_and_times_are_read_by_their_distance_and_their_cycles():
    (kind,) = infer([day(1), day(3), date(2024, 5, 5)]).root.kinds
    assert (kind.form, kind.mean, kind.deviation) == (
        "date-time",
        1714694400.0,
        pytest.approx(86400 * 2 * 6**0.5 / 3),
    )
    read = lambda value: reading.read_moment(ANYWHERE, kind.mean, kind.deviation, value)  # noqa: E731
    assert read(day(3)) == read("2024-05-03T00:00:00") == read(np.datetime64("2024-05-03T00:00:00"))
    assert read("2024-05-03T02:00+02:00")[0] == read(day(3, tzinfo=UTC))[0] == 0.0
    assert read(day(5))[0] == pytest.approx(86400 * 2 / kind.deviation)
    assert read("9999-01-01")[0] == 10.0 and moment_of("0001-01-01T00:00:00+14:00") is None
    assert np.allclose(read(date(2023, 5, 3))[1:3], read(date(2024, 5, 2))[1:3])  # the 123rd day of the year
    assert read("2024-05-03")[5:7] == read("2024-05-10")[5:7] != read("2024-05-11")[5:7]  # Fridays
    assert read("2024-05-03")[7:] == [0, 0] and np.allclose(read(day(3, hour=12))[7:], [0, -1])
    (kind,) = infer([time(6), time(7)]).root.kinds
    assert (kind.form, kind.mean) == ("time", 6.5 * 3600)


def test_texts_are_moments_only_if_all_of_them_are():
    def forms(*samples):
        return [kinds.title(kind) for kind in infer(samples).root.kinds]

    assert forms("2024-05-06", "2024-05-07T10:00Z") == ["moment"]
    assert forms("2024-05-06", "10:00") == forms("2024-05-06", "soon") == forms("2024-02-31") == ["text"]
    assert forms("20240506") == forms("2024-W19") == forms("2024-05") == forms("") == ["text"]
    assert forms(3, "10:00") == ["number", "moment"]
    schema = infer([{"on": date(2024, 5, 6)}, {"on": None}])
    assert str(schema).endswith("on: moment (1 value, 1 missing): 2024-05-06")
    assert Schema.from_plain(schema.to_plain()) == schema
    assert (
        schema.compare({"on": "soon"}).kinds == (("on", "text"),)
        and schema.compare({"on": "2020-01-01"}).kinds == ()
    )
    program = fb.compile(schema.block(2), "numpy")
    with pytest.warns(
        UnlikeSamplesWarning,
        match="on: expected a date or time of ISO 8601, as in the samples, found str 'soon'",
    ):
        assert np.array_equal(program.run([{"on": "soon"}]), program.run([{"on": None}]))


def test_a_model_of_dates_is_served_as_it_was_trained(tmp_path):
    schema = infer([{"on": day(n)} for n in range(1, 9)])
    program = fb.compile(schema.block(4), "numpy")
    program.save(tmp_path / "m.safetensors")
    again = fb.load(tmp_path / "m.safetensors", "numpy")
    assert np.array_equal(again.run([{"on": "2024-05-04T00:00:00"}]), program.run([{"on": day(4)}]))
    assert json_schema(schema.root)["properties"]["on"]["examples"] == ["2024-05-04T12:00:00"]
