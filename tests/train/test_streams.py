"""Streams: each row once an epoch in an order of their own, without being held, and to the bit after a kill."""

import functools
import itertools
import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import ExampleError, ExampleTypeError, ProcessError, TrainingError
from foldbatch.train import DataParallel, LambdaCallback, LRFinder, Sampler, Stream, Trainer, shuffled
from foldbatch.train.pieces import is_stream
from tests.communicators.threads import in_threads
from tests.train.small import DEV, EXAMPLES, assert_same, figures, model, trainer

ROWS = [*EXAMPLES, *[([-y for y in x], 1 - label) for x, label in EXAMPLES]]  # 40


class Source:
    """Rows that can be iterated again; counts how often it was opened."""

    def __init__(self, rows):
        self.rows, self.opened = rows, 0

    def __iter__(self):
        self.opened += 1
        yield from self.rows


@settings(deadline=None, max_examples=150)
@given(
    rows=st.integers(0, 120),
    shuffle=st.integers(0, 130),
    size=st.integers(1, 40),
    seed=st.integers(0, 3),
    data=st.data(),
)
def test_each_row_comes_once_an_epoch_and_batches_that_were_done_are_left_out(
    rows, shuffle, size, seed, data
):
    stream = Stream(lambda: iter(range(rows)), shuffle=shuffle)
    batches = list(stream.epoch(seed, 1, size))
    assert sorted(itertools.chain(*(examples for _, examples in batches))) == list(range(rows))
    assert all(numbers == examples for numbers, examples in batches)
    assert all(len(examples) == size for _, examples in batches[:-1])
    assert list(stream.epoch(seed, 1, size)) == batches
    done = data.draw(st.integers(0, len(batches)))
    again, seen = Stream(lambda: iter(range(rows)), shuffle=shuffle), []
    if done * size + max(shuffle, 1) >= rows or data.draw(st.booleans()):  # it had been read to its end
        again.expect(rows)
    assert list(again.epoch(seed, 1, size, done, seen.append)) == batches[done:]
    assert len(seen) == (done > 0 and rows > 0)


def test_a_stream_that_fits_into_its_buffer_is_shuffled_as_a_list_is():
    stream = Stream(lambda: iter(range(50)), shuffle=50)
    for epoch in range(3):
        assert [rows for rows, _ in stream.epoch(4, epoch, 8)] == shuffled(range(50), 8, 4).epoch(epoch)


def test_rows_are_mixed_far_and_in_each_epoch_anew():
    stream = Stream(lambda: iter(range(2000)), shuffle=100)
    orders = [[row for rows, _ in stream.epoch(0, epoch, 10) for row in rows] for epoch in range(2)]
    assert orders[0][:1000] != orders[1][:1000]  # also before the last rows leave the buffer
    moved = np.abs(np.array(orders[0]) - np.arange(2000))
    assert 50 < moved.mean() < 200 and moved.max() > 300
    in_order = Stream(lambda: iter(range(2000)), shuffle=1)
    assert [row for rows, _ in in_order.epoch(0, 0, 10) for row in rows] == list(range(2000))


@pytest.mark.parametrize(
    "source", [lambda: iter(EXAMPLES), functools.partial(iter, EXAMPLES), Source(EXAMPLES), Stream(EXAMPLES)]
)
def test_a_short_stream_trains_as_its_list_does_to_the_bit(source):
    whole, streamed = trainer(), trainer()
    whole.fit(EXAMPLES, DEV, epochs=3)
    streamed.fit(source, lambda: iter(DEV), epochs=3)
    assert_same(whole, streamed)
    assert streamed.batches == 5


def test_lists_tables_and_generators_are_no_streams():
    values = (
        [1],
        (1,),
        {1},
        {1: 2}.values(),
        iter([1]),
        (x for x in [1]),
        range(3),
        "text",
        np.ones(3),
        Source,
    )
    assert not any(map(is_stream, values))
    assert not is_stream(fb.trees.Tree.leaf("NN", "film"))


def test_a_generator_is_made_a_list():
    whole, listed = trainer(), trainer()
    whole.fit(EXAMPLES, DEV, epochs=2)
    listed.fit((example for example in EXAMPLES), iter(DEV), epochs=2)
    assert_same(whole, listed)


@pytest.mark.parametrize("shuffle", [0, 7, 100])
@pytest.mark.parametrize("step", [2, 9, 10, 13, 19])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_stream_that_is_resumed_ends_in_the_same_bits(tmp_path, shuffle, step, accumulate):
    """Also within the last rows of an epoch, at its end, and where its number of rows is known by then only."""

    def made(folder=None, callbacks=()):
        return trainer(folder, every=1, callbacks=callbacks, accumulate=accumulate)

    def examples():
        return Stream(lambda: iter(ROWS), shuffle=shuffle)

    whole = made()
    whole.fit(examples(), lambda: iter(DEV), epochs=4)

    def interrupt(part):
        if part.steps == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, [LambdaCallback(on_step_start=interrupt)]).fit(examples(), lambda: iter(DEV), epochs=4)
    resumed = made(tmp_path)
    resumed.fit(examples(), lambda: iter(DEV), epochs=4, resume=True)
    assert_same(whole, resumed)


@pytest.mark.parametrize("rows", [ROWS[1:], [ROWS[1], ROWS[0], *ROWS[2:]]])
def test_a_checkpoint_of_a_stream_of_other_first_rows_is_refused(tmp_path, rows):
    trainer(tmp_path).fit(lambda: iter(ROWS), DEV, epochs=1)
    with pytest.raises(
        TrainingError, match="other examples|number of examples 40 in the checkpoint, 39 here"
    ):
        trainer(tmp_path).fit(lambda: iter(rows), DEV, epochs=2, resume=True)


@pytest.mark.parametrize("stop", [10, 200])
def test_a_checkpoint_of_a_stream_of_other_later_rows_is_refused(tmp_path, stop):
    rows = ROWS * 10

    def interrupt(part):
        if part.steps == 25:
            raise KeyboardInterrupt

    callbacks = [LambdaCallback(on_step_start=interrupt)]
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, every=1, callbacks=callbacks).fit(
            Stream(lambda: iter(rows), shuffle=stop), epochs=1
        )
    other = [*rows[:90], *rows[91:]]
    resumed = trainer(tmp_path)
    with pytest.raises(TrainingError, match="another row before batch 25; resume with the same data"):
        resumed.fit(Stream(lambda: iter(other), shuffle=stop), epochs=1, resume=True)
    assert resumed.steps == 25


def test_another_number_of_rows_than_in_the_checkpoint_is_refused(tmp_path):
    rows = ROWS * 4
    trainer(tmp_path).fit(lambda: iter(rows), DEV, epochs=1)
    with pytest.raises(
        TrainingError, match="stream: expected 160 rows, as an earlier reading told, found the"
    ):
        trainer(tmp_path).fit(lambda: iter(rows[:-1]), DEV, epochs=2, resume=True)


def test_another_buffer_or_size_is_refused(tmp_path):
    trainer(tmp_path).fit(lambda: iter(ROWS), DEV, epochs=1)
    with pytest.raises(TrainingError, match="buffer 10000 in the checkpoint, .* buffer 20 here"):
        trainer(tmp_path).fit(Stream(lambda: iter(ROWS), shuffle=20), DEV, epochs=2, resume=True)


@pytest.mark.parametrize(
    ("lengths", "found"), [((9, 9, 40, 30), "the end after 30"), ((9, 9, 30, 40), "more than 30")]
)
def test_a_stream_that_changes_its_length_is_refused(lengths, found):
    """It is opened for its first row, and once more to see whether the rows are the same objects."""
    left = list(lengths)
    made = trainer()
    with pytest.raises(
        TrainingError, match=f"rows, as an earlier reading told, found {found}; give what yields"
    ):
        made.fit(lambda: iter(ROWS[: left.pop(0)]), DEV, epochs=4)
    assert made.epoch == 1


def test_an_iterator_that_a_function_returns_twice_is_refused():
    rows = iter(ROWS)
    made = trainer()
    with pytest.raises(
        ExampleTypeError, match="an iterator from the first row on, found .* that was read before"
    ):
        made.fit(lambda: rows, DEV, epochs=1)
    assert made.steps == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"examples": lambda: iter([])}, TrainingError, "one row or more, found an empty stream"),
        ({"validation": lambda: iter([])}, TrainingError, "fit validation: expected one row or more"),
        ({"examples": lambda: 5}, ExampleTypeError, "a function that opens rows, found one of int 5"),
        (
            {"sample_weight": [1.0] * 40},
            TrainingError,
            "fit sample_weight: expected a list .* found a stream",
        ),
        (
            {"class_weight": "balanced"},
            TrainingError,
            "fit class_weight: expected a list .* multiply its loss",
        ),
    ],
)
def test_errors_before_the_first_step(arguments, error, message):
    made = trainer()
    with pytest.raises(error, match=message):
        made.fit(**{"examples": lambda: iter(ROWS), "epochs": 1, **arguments})
    assert made.steps == 0


def test_a_sampler_is_refused_and_what_cannot_be_opened_again():
    made = trainer(sampler=Sampler([1] * 40, 4), batch_size=None)
    with pytest.raises(TrainingError, match="leave the sampler out"):
        made.fit(lambda: iter(ROWS), epochs=1)
    with pytest.raises(ExampleTypeError, match="can be read once; give the function that makes it"):
        Stream(iter(ROWS))
    with pytest.raises(ExampleTypeError, match="stream: expected rows, found int 3"):
        Stream(3)
    with pytest.raises(TrainingError, match="Stream shuffle"):
        Stream(ROWS, shuffle=-1)


def test_a_bad_row_is_named_by_its_number():
    rows = [*ROWS[:33], ([0.0, 1.0], 1), *ROWS[34:]]
    with pytest.raises(ExampleError) as caught:
        trainer().fit(lambda: iter(rows), epochs=1)
    assert any(note.endswith("is row 33 of the stream") for note in caught.value.__notes__)
    with pytest.raises(ExampleError) as caught:
        trainer().evaluate(lambda: iter(rows))
    assert "example 33 is row 33 of the stream" in caught.value.__notes__


def test_an_error_of_the_source_says_after_how_many_rows_it_came():
    def broken():
        yield from ROWS[:25]
        raise OSError("connection lost")

    with pytest.raises(OSError, match="connection lost") as caught:
        trainer().fit(broken, epochs=1)
    assert caught.value.__notes__ == ["stream, after 25 rows"]


def test_rows_need_not_be_held():
    """A list that is yielded again and again with other numbers is copied as it comes."""

    def rows():
        row = [0.0, 0.0, 0.0]
        for number in range(20_000):
            row[0] = number % 7
            yield row, number % 2

    def peak(count):
        tracemalloc.start()
        for _ in Stream(lambda: itertools.islice(rows(), count), shuffle=300).epoch(0, 0, 100):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(1000)
    assert peak(6000) < 1.5 * peak(1500)
    batches = Stream(lambda: itertools.islice(rows(), 30), shuffle=9).epoch(0, 0, 5)
    assert all(
        row[0][0] == number % 7
        for numbers, part in batches
        for number, row in zip(numbers, part, strict=True)
    )


def test_a_walk_learns_of_all_rows_before_the_first_epoch(tmp_path):
    rows = [(number // 10, number) for number in range(40)]

    def fitted(folder=None, *, epochs=2, resume=False):
        cells = [fb.Linear(1, name=f"cell{number}") for number in range(4)]

        def walk(row):
            value = cells[row[0]](fb.tensor([float(row[1])]))
            fb.loss(fb.ops.sum(value * value))

        callbacks = [] if folder is None else [fb.train.Checkpoints(folder)]
        program = fb.compile(walk, "numpy", threads=1)
        made = Trainer(program, fb.Adam(0.1), batch_size=4, callbacks=callbacks)
        made.fit(Stream(lambda: iter(rows), shuffle=8), epochs=epochs, resume=resume)
        return made

    whole = fitted()
    assert len(whole.program.params) == 8
    fitted(tmp_path, epochs=1)
    assert_same(whole, fitted(tmp_path, resume=True))


def test_rows_of_a_source_that_holds_them_must_stay_as_they_are():
    """As those of a list: here each holds an iterator, which the first reading would use up."""

    class Row:
        def __init__(self):
            self.words = iter([1.0, 2.0])

    def walk(row):
        for word in row.words:
            fb.loss(fb.tensor(word) * weight)

    weight = fb.Parameter([], init=1.0, name="weight")
    with pytest.raises(
        ExampleTypeError, match="data that can be read again, as fit reads a stream once to look"
    ):
        Trainer(fb.compile(walk, "numpy"), fb.SGD(0.1)).fit(Source([Row(), Row()]), epochs=1)
    made = Trainer(fb.compile(walk, "numpy"), fb.SGD(0.1))
    assert made.fit(lambda: (Row() for _ in range(2)), epochs=1)[0]["loss"] == 3.0


def test_predictions_evaluation_and_the_search_of_a_rate_take_streams():
    made = trainer()
    for one, other in zip(made.predict(lambda: iter(ROWS)), made.predict(ROWS), strict=True):
        np.testing.assert_array_equal(one, other)
    assert made.evaluate(Source(ROWS)) == made.evaluate(ROWS)
    finder, listed = LRFinder(trainer(), steps=40), LRFinder(trainer(), steps=40)
    assert finder.find(Source(ROWS)) == listed.find(ROWS)
    assert finder.losses == listed.losses


# ranks


def of_rank(communicator, folder=None, *, rows=lambda rank: ROWS, shuffle=10, resume=False, **options):
    program = DataParallel(fb.compile(model(), "numpy", threads=1), communicator)
    made = trainer(folder, program=program, every=1, **options)
    own = rows(communicator.rank)
    examples = Stream(lambda: iter(own), shuffle=shuffle)
    made.fit(examples, lambda: iter(DEV * 100), epochs=3, resume=resume)
    return made


def test_ranks_have_the_same_bits_and_those_of_one_process_to_rounding(tmp_path):
    alone = of_rank(fb.communicators.Alone())
    ranks = in_threads(of_rank, 3)
    for other in [*ranks[1:], *in_threads(of_rank, 3)]:
        assert figures(other) == figures(ranks[0])
        for name, array in ranks[0].program.params.items():
            np.testing.assert_array_equal(other.program.params[name], array)
    for name, array in alone.program.params.items():
        np.testing.assert_allclose(ranks[0].program.params[name], array, rtol=2e-5, atol=1e-6)
    for one, other in zip(figures(alone), figures(ranks[0]), strict=True):
        assert all(np.isclose(one[name], other[name]) for name in one)

    def interrupt(part):
        if part.steps == 13 and not part.parallel.communicator.rank:
            raise KeyboardInterrupt

    def broken(communicator):
        try:
            of_rank(communicator, tmp_path, callbacks=[LambdaCallback(on_step_start=interrupt)])
        except (KeyboardInterrupt, ProcessError):
            return

    in_threads(broken, 3)
    resumed = in_threads(lambda communicator: of_rank(communicator, tmp_path, resume=True), 3)
    assert_same(ranks[0], resumed[1])


@pytest.mark.parametrize(
    "other",
    [
        [*ROWS, *ROWS[:20], *ROWS, *ROWS[::-1]],  # rows in another order, from number 100 on
        [*ROWS, *ROWS[:20], *ROWS, *ROWS][:120],  # fewer
    ],
)
def test_a_rank_that_reads_other_rows_is_told(other):
    """Also where it ends early: others do not wait for it."""
    first = [*ROWS, *ROWS[:20], *ROWS, *ROWS]
    with pytest.raises(TrainingError, match="another batch [0-9]* of epoch 1 at rank 1 than at rank 0"):
        in_threads(lambda own: of_rank(own, rows=lambda rank: other if rank else first), 2)


# libraries


@pytest.fixture
def folder(tmp_path):
    """Three files of Parquet, of 50, 30 and 20 rows in row groups of 20."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files, first = tmp_path / "files", 0
    files.mkdir()
    for name, count in (("a", 50), ("b", 30), ("c", 20)):
        rows = [
            {"x": [float(n), 1.0, -1.0], "label": n % 2, "number": n} for n in range(first, first + count)
        ]
        parquet.write_table(pa.Table.from_pylist(rows), files / f"{name}.parquet", row_group_size=20)
        first += count
    return files


def records():
    vector = fb.GetItem("x") >> fb.Vector(3) >> fb.Linear(2, name="out")
    label = fb.GetItem("label") >> fb.Scalar("int32")
    return fb.AllOf(vector, label) >> fb.Function(fb.ops.cross_entropy) >> fb.Loss()


def fitted(source, folder=None, *, epochs=2, resume=False, callbacks=()):
    kept = [] if folder is None else [fb.train.Checkpoints(folder, every=1)]
    program = fb.compile(records(), "numpy", threads=1)
    made = Trainer(program, fb.Adam(0.1), batch_size=8, callbacks=[*callbacks, *kept])
    made.fit(source, epochs=epochs, resume=resume)
    return made


def sources(folder):
    dataset = pytest.importorskip("pyarrow.dataset")
    data = dataset.dataset(folder, format="parquet")
    yield data
    yield data.scanner()
    yield data.filter(dataset.field("number") >= 0)
    yield lambda: data.scanner().to_reader()
    yield lambda: data


def test_arrows_data_sets_train_as_their_table_does(folder):
    table = fitted(next(sources(folder)).to_table())
    for source in sources(folder):
        assert_same(table, fitted(source))


def test_row_groups_are_read_in_another_order_in_each_epoch_and_only_those_needed(folder):
    stream = Stream(next(sources(folder)), shuffle=5)
    assert (stream.rows, stream.counted) == (100, 100)
    epochs = [[row for rows, _ in stream.epoch(0, epoch, 10) for row in rows] for epoch in range(2)]
    assert all(sorted(rows) == list(range(100)) for rows in epochs)
    groups = [0, 20, 40, 50, 70, 80, 100]
    firsts = [set(np.searchsorted(groups, rows[:10], "right").tolist()) for rows in epochs]
    assert firsts[0] != firsts[1] and max(map(len, firsts)) <= 2
    whole = list(stream.epoch(0, 0, 10))
    for done in range(11):
        again = Stream(next(sources(folder)), shuffle=5)
        assert list(again.epoch(0, 0, 10, done)) == whole[done:]
    assert all(row["number"] == n for rows, part in whole for n, row in zip(rows, part, strict=True))


def test_a_resumed_training_on_parquet_skips_what_it_has_read(folder, tmp_path):
    def interrupt(part):
        if part.steps == 17:
            raise KeyboardInterrupt

    whole = fitted(Stream(next(sources(folder)), shuffle=10))
    with pytest.raises(KeyboardInterrupt):
        fitted(
            Stream(next(sources(folder)), shuffle=10),
            tmp_path / "kept",
            callbacks=[LambdaCallback(on_step_start=interrupt)],
        )
    assert_same(whole, fitted(Stream(next(sources(folder)), shuffle=10), tmp_path / "kept", resume=True))


def test_a_bad_row_of_a_file_is_named(folder):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(folder / "b.parquet").to_pylist()
    table[25]["label"] = None
    parquet.write_table(pa.Table.from_pylist(table), folder / "b.parquet", row_group_size=20)
    with pytest.raises(ExampleError) as caught:
        fitted(next(sources(folder)))
    assert any(note.endswith(f"is row 25 of {folder / 'b.parquet'}") for note in caught.value.__notes__)


def test_a_file_that_loses_rows_while_training_runs_is_told(folder):
    _, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    stream = Stream(next(sources(folder)))
    table = parquet.read_table(folder / "c.parquet")
    parquet.write_table(table.slice(0, 11), folder / "c.parquet")
    with pytest.raises((TrainingError, OSError)):
        fitted(stream)


def test_data_sets_of_hugging_face_are_streams():
    datasets = pytest.importorskip("datasets")
    rows = [{"x": [float(n), 1.0, -1.0], "label": n % 2} for n in range(30)]
    held = datasets.Dataset.from_list(rows)
    streaming = held.to_iterable_dataset(num_shards=3)
    assert is_stream(streaming) and not is_stream(held)
    table = fitted(held)
    assert_same(table, fitted(streaming))
    assert_same(table, fitted(streaming.with_format("arrow")))


def test_pytorchs_iterable_data_sets_are_streams_even_with_a_length():
    data = pytest.importorskip("torch.utils.data")

    class Rows(data.IterableDataset):
        def __iter__(self):
            return iter(EXAMPLES)

        def __len__(self):
            return len(EXAMPLES)

    whole, streamed = trainer(), trainer()
    whole.fit(EXAMPLES, DEV, epochs=2)
    streamed.fit(Rows(), DEV, epochs=2)
    assert_same(whole, streamed)
    assert is_stream(data.DataLoader(Rows(), batch_size=None))
    with pytest.raises(ExampleTypeError, match="whose items are batches"):
        trainer().fit(data.DataLoader(Rows(), batch_size=2), epochs=1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_training_that_is_killed_goes_on_to_the_bit(tmp_path):
    def made(folder=None):
        return trainer(folder, every=1)

    def examples():
        return Stream(lambda: iter(ROWS), shuffle=9)

    whole = made()
    whole.fit(examples(), lambda: iter(DEV), epochs=3)
    child = os.fork()
    if not child:
        try:
            dying = trainer(
                tmp_path,
                every=1,
                callbacks=[
                    LambdaCallback(on_step_start=lambda part: part.steps == 14 and os.kill(os.getpid(), 9))
                ],
            )
            dying.fit(examples(), lambda: iter(DEV), epochs=3)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    resumed = made(tmp_path)
    resumed.fit(examples(), lambda: iter(DEV), epochs=3, resume=True)
    assert_same(whole, resumed)
