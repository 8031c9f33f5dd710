"""Tables as examples: each row is one, whatever library the table is of; with stand-ins where it is missing."""

from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleTypeError
from foldbatch.trees import given as tables
from foldbatch.trees.given import chosen, rows_of

ROWS = [{"a": n + 0.5, "b": "xyz"[n % 3]} for n in range(7)]


class Located:
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, place):
        return PandasLike(self.rows[place] if isinstance(place, slice) else [self.rows[i] for i in place])


class PandasLike:
    """Speaks what a DataFrame of pandas speaks: its items are columns."""

    def __init__(self, rows):
        self.rows = rows
        self.columns = ["a", "b"]
        self.iloc = Located(rows)

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.columns)

    def __getitem__(self, name):
        return [row[name] for row in self.rows]

    def iterrows(self):
        return enumerate(self.rows)

    def to_dict(self, orient):
        assert orient == "records"
        return self.rows


class PolarsLike:
    """Speaks what a DataFrame of polars speaks: a loop over it goes over its columns."""

    def __init__(self, rows):
        self.rows = rows
        self.columns = ["a", "b"]

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter([[row[name] for row in self.rows] for name in self.columns])

    def __getitem__(self, place):
        return PolarsLike(self.rows[place] if isinstance(place, slice) else [self.rows[i] for i in place])

    def __arrow_c_stream__(self, schema=None):
        raise AssertionError

    def to_dicts(self):
        return self.rows


class LazyLike:
    def collect_schema(self):
        raise AssertionError

    def collect(self):
        return PolarsLike(ROWS)


def tables_of():
    yield "pandas-like", PandasLike(ROWS)
    yield "polars-like", PolarsLike(ROWS)
    yield "lazy", LazyLike()
    if find_spec("pandas"):
        pd = pytest.importorskip("pandas")
        yield "pandas", pd.DataFrame(ROWS, index=[f"row {n}" for n in range(7)])
    if find_spec("polars"):
        pl = pytest.importorskip("polars")
        yield "polars", pl.DataFrame(ROWS)
        yield "polars lazy", pl.LazyFrame(ROWS)
    if find_spec("pyarrow"):
        pa = pytest.importorskip("pyarrow")
        table = pa.Table.from_pylist(ROWS)
        yield "arrow", table
        yield "batches", table.to_reader()
        yield "stream", SimpleStream(table)
        data_sets = pytest.importorskip("pyarrow.dataset")
        yield "data set", data_sets.dataset(table)
        yield "scanner", data_sets.dataset(table).scanner()
        buffer = pa.BufferOutputStream()
        pytest.importorskip("pyarrow.parquet").write_table(table, buffer)
        yield (
            "file of Parquet",
            pytest.importorskip("pyarrow.parquet").ParquetFile(pa.BufferReader(buffer.getvalue())),
        )
        if find_spec("duckdb"):
            yield "relation", pytest.importorskip("duckdb").connect().from_arrow(table)


class SimpleStream:
    """Speaks Arrow's protocol and nothing else, as relations of DuckDB do."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, schema=None):
        return self.table.__arrow_c_stream__(schema)


TABLES = dict(tables_of())


@pytest.mark.parametrize("name", TABLES)
def test_the_rows_of_a_table_are_the_examples(name):
    table = dict(tables_of())[name]
    rows = rows_of(table)
    assert len(rows) == 7
    assert list(rows) == ROWS
    assert rows[2:5] == ROWS[2:5]
    assert rows[3] == ROWS[3]
    assert rows[-1] == ROWS[-1]
    with pytest.raises(IndexError):
        rows[7]
    assert chosen(rows, [5, 0, 5]) == [ROWS[5], ROWS[0], ROWS[5]]
    assert chosen(rows, []) == []


@pytest.mark.parametrize("name", [name for name in TABLES if name != "batches"])
def test_programs_schemas_and_trainers_take_tables_row_by_row(name):
    table = TABLES[name]
    schema = fb.schema.infer(table)
    assert schema == fb.schema.infer(ROWS)
    scores = schema.block(3) >> fb.Linear(2)
    program = fb.compile(scores, "numpy")
    assert np.array_equal(program.run(table), program.run(ROWS))
    plain = fb.compile(fb.GetItem("a") >> fb.Scalar() >> fb.Loss(), "numpy")
    assert plain.value_and_grad(table)[0] == plain.value_and_grad(ROWS)[0]
    trainer = fb.train.Trainer(plain, fb.SGD(), batch_size=3)
    trainer.fit(table, epochs=1)
    assert trainer.history[0]["loss"] == pytest.approx(np.mean([row["a"] for row in ROWS]))


def test_a_program_predicts_for_the_rows_of_a_table():
    program = fb.compile(fb.GetItem("a") >> fb.Scalar(), "numpy")
    assert program.predict(PolarsLike(ROWS)) == [{"result": row["a"]} for row in ROWS]
    assert [float(x) for x in program.run(program.prepare(PandasLike(ROWS)))] == [row["a"] for row in ROWS]


def test_columns_are_lists_of_their_values_and_single_rows_are_refused():
    column = type("Series", (), {"iloc": 0, "index": [0, 1], "tolist": lambda self: [5, 6]})()
    assert rows_of(column)[:] == [5, 6]
    row = type("Series", (), {"iloc": 0, "index": ["a", "b"], "tolist": lambda self: [5, 6]})()
    with pytest.raises(ExampleTypeError, match=r"found Series with names: one row; write \[row\]"):
        rows_of(row)
    for library in ("pandas", "polars"):
        if find_spec(library):
            series = __import__(library).Series([5, 6])
            assert rows_of(series)[:] == [5, 6]
    if find_spec("pyarrow"):
        pa = pytest.importorskip("pyarrow")
        assert rows_of(SimpleStream(pa.chunked_array([[5], [6]])))[:] == [5, 6]


def test_two_columns_of_one_name_are_refused():
    frame = PandasLike(ROWS)
    frame.columns = ["a", "a"]
    with pytest.raises(ExampleTypeError, match="expected a table whose columns have different names"):
        rows_of(frame)


def test_a_table_that_only_arrow_reads_is_refused_where_arrow_is_missing(monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    with pytest.raises(ExampleTypeError, match=r"found SimpleStream, which is read by pyarrow; pip install"):
        rows_of(SimpleStream(None))


def test_a_loader_of_batches_is_refused_and_one_of_examples_is_read():
    loader = SimpleNamespace(dataset=[1], collate_fn=list, batch_size=2, batch_sampler=[[0]])
    program = fb.compile(fb.Scalar() >> fb.Loss(), "numpy")
    trainer = fb.train.Trainer(program, fb.SGD())
    for use in (program.run, program.value_and_grad, fb.schema.infer, lambda x: trainer.fit(x, epochs=1)):
        with pytest.raises(
            ExampleTypeError, match=r"whose items are batches; give its data set, loader.dataset"
        ):
            use(loader)
    if find_spec("torch"):
        loaders = pytest.importorskip("torch.utils.data")
        with pytest.raises(ExampleTypeError, match="found DataLoader of 1, whose items are batches"):
            trainer.fit(loaders.DataLoader([1.0, 2.0], batch_size=2), epochs=1)
        assert len(program.run(loaders.DataLoader([1.0, 2.0], batch_size=None))) == 2
