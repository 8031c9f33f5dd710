"""Streams that ranks read in parts: all rows once an epoch, as many batches on each rank, and the same bits."""

import itertools
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.communicators import Alone
from foldbatch.errors import ExampleError, TrainingError
from foldbatch.train import Stream
from foldbatch.train.pieces import Piece
from tests.communicators.launchers import LAUNCHERS, launched
from tests.communicators.threads import in_threads
from tests.train.sharding import ROWS, fitted, numbers_of, uneven
from tests.train.small import assert_same, figures, trainer

pytestmark = pytest.mark.slow


def in_pieces(counts, shuffle=1):
    """Return a stream of the numbers from 0 on, in pieces that know how many they have, some rows at a time."""
    stream, first, pieces = Stream(list(range(sum(counts))), shuffle=shuffle), 0, []
    for place, count in enumerate(counts):
        numbers = range(first, first + count)
        read = lambda numbers=numbers: (numbers[i : i + 3] for i in range(0, len(numbers), 3))  # noqa: E731
        pieces.append(Piece(read, count, f"file {place}"))
        first += count
    stream._read_pieces(pieces)
    return stream


@settings(deadline=None, max_examples=150)
@given(
    counts=st.lists(st.integers(0, 25), min_size=1, max_size=9),
    ranks=st.integers(2, 5),
    size=st.integers(1, 20),
    shuffle=st.integers(0, 30),
    data=st.data(),
)
def test_ranks_read_all_rows_once_in_as_many_batches_as_one_process(counts, ranks, size, shuffle, data):
    whole = in_pieces(counts, shuffle)
    parts = [in_pieces(counts, shuffle).shard(rank, ranks, size) for rank in range(ranks)]
    total = sum(counts)
    if total <= shuffle or len(counts) < ranks or size < ranks:
        assert all(part.ranks == 1 for part in parts)
        return
    assert sorted(itertools.chain(*parts)) == list(range(total))
    epochs = [list(part.epoch(3, 1, size)) for part in parts]
    rows = sorted(itertools.chain.from_iterable(rows for epoch in epochs for _, rows in epoch))
    assert rows == list(range(total))
    steps = max(map(len, epochs))
    assert steps == whole.batches(size) == parts[0].batches(size)
    for step in range(steps - 1):
        assert sum(len(epoch[step][1]) for epoch in epochs) >= size - ranks
    for part, epoch in zip(parts, epochs, strict=True):
        assert all(numbers == list(rows) for numbers, rows in epoch)
        done = data.draw(st.integers(0, steps))
        again = in_pieces(counts, shuffle).shard(part.rank, ranks, size)
        assert list(again.epoch(3, 1, size, done)) == epoch[done:]


def test_full_batches_are_as_large_as_those_of_one_process():
    parts = [in_pieces([40, 60]).shard(rank, 2, 9) for rank in range(2)]
    sizes = [[len(rows) for _, rows in part.epoch(0, 0, 9)] for part in parts]
    assert sizes == [[4] * 11, [5] * 11 + [1]]


def test_a_rank_opens_no_piece_of_others_and_of_one_that_it_shares_its_own_rows():
    opened = []

    def part(rank):
        stream = in_pieces([10, 10, 10, 10])
        for place, piece in enumerate(stream._pieces):
            read = lambda read=piece.read, place=place: opened.append((rank, place)) or read()  # noqa: E731
            stream._pieces[place] = Piece(read, piece.rows, piece.file)
        return stream.shard(rank, 3, 9)

    assert [list(part(rank)) for rank in range(3)] == [
        [*range(13)], [*range(13, 26)], [*range(26, 40)],
    ]  # fmt: skip
    assert opened == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)]
    assert part(1).place(20) == "row 0 of file 2" and part(1).place(13) == "row 3 of file 1"


def test_what_is_small_or_lies_in_few_pieces_or_should_be_whole_is_read_by_each_rank():
    assert in_pieces([10, 10], shuffle=20).shard(1, 2, 4).ranks == 1
    assert in_pieces([10, 10]).shard(1, 3, 4).ranks == 1
    assert in_pieces([10, 10]).shard(1, 2, 1).ranks == 1
    assert Stream(lambda: iter(ROWS), shuffle=1).shard(1, 2, 4).ranks == 1
    whole = Stream(uneven, sharded=False)
    assert whole.shard(1, 2, 4) is whole and not whole.map(len).sharded and len(list(whole)) == 100
    cut = in_pieces([10, 10]).shard(1, 2, 4)
    assert cut.shard(0, 2, 4) is cut and cut.ranks == 2


def test_a_function_that_opens_parts_is_refused_where_a_batch_has_fewer_rows_than_ranks():
    with pytest.raises(
        TrainingError, match="batches of 3 rows or more, found 2; a batch needs a row of each"
    ):
        Stream(uneven).shard(0, 3, 2)


# trainings


def of_files(shuffle):
    stream = in_pieces([40, 20, 40], shuffle)
    stream._functions = (lambda number: ROWS[number],)
    return stream


SOURCES = {"function": lambda shuffle: Stream(uneven, shuffle=shuffle), "files": of_files}


@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]


def assert_ranks_agree(ranks):
    """Look whether all have the same bits, and have read each row once in each of two epochs."""
    first, _ = ranks[0]
    for made, seen in ranks:
        assert figures(made) == figures(first) and made.steps == first.steps
        assert seen.sizes == ranks[0][1].sizes
        for name, array in first.program.params.items():
            np.testing.assert_array_equal(made.program.params[name], array)
    assert np.sum([[len(rows) for rows in seen.rows] for _, seen in ranks], 0).tolist() == ranks[0][1].sizes
    steps = first.steps // 2
    for epoch in range(2):
        rows = [seen.rows[epoch * steps : (epoch + 1) * steps] for _, seen in ranks]
        assert sorted(itertools.chain(*itertools.chain(*rows))) == list(range(100))


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_train_as_one_process_does_on_batches_of_their_rows(source, size, accumulate):
    """With Dropout and clipping, which depend on the places of a batch's examples, and on their number."""
    ranks = in_threads(lambda own: fitted(own, source(9), accumulate=accumulate), size)
    assert_ranks_agree(ranks)
    made, _ = ranks[0]
    batches = [list(itertools.chain(*parts)) for parts in zip(*(seen.rows for _, seen in ranks), strict=True)]

    class Given(fb.train.Sampler):
        def epoch(self, number):
            steps = len(batches) // 2
            return batches[number * steps : (number + 1) * steps]

    options = {"sampler": Given([1] * 100, 8), "batch_size": None}
    alone, seen = fitted(Alone(), ROWS, **options)
    assert seen.rows == batches
    for name, array in alone.program.params.items():
        np.testing.assert_allclose(made.program.params[name], array, rtol=2e-5, atol=1e-6)
    for one, other in zip(figures(alone), figures(made), strict=True):
        assert all(np.isclose(one[name], other[name]) for name in one)


@pytest.mark.parametrize("stop", [1, 9, 12, 13, 22])
def test_a_training_that_is_resumed_ends_in_the_same_bits(source, stop, tmp_path):
    """Also where one rank has no rows left, and in the second epoch."""
    whole = in_threads(lambda own: fitted(own, source(9)), 2)
    in_threads(lambda own: fitted(own, source(9), tmp_path, stop=stop), 2)
    resumed = in_threads(lambda own: fitted(own, source(9), tmp_path, resume=True), 2)
    for (made, seen), (again, rest) in zip(whole, resumed, strict=True):
        assert_same(made, again)
        assert rest.rows == seen.rows[stop:]


def test_other_ranks_go_on_at_the_end_of_an_epoch_and_not_within_one(source, tmp_path):
    in_threads(lambda own: fitted(own, source(9), tmp_path / "within", stop=5), 2)
    steps = in_threads(lambda own: fitted(own, source(9), tmp_path, epochs=1), 2)[0][0].steps
    for ranks in (3, 1):
        with pytest.raises(TrainingError, match=r"a stream read in 2 parts, found one in \d part"):
            in_threads(lambda own: fitted(own, source(9), tmp_path / "within", resume=True), ranks)
    ended = in_threads(lambda own: fitted(own, source(9), tmp_path, resume=True), 3)
    assert ended[0][0].epoch == 2
    assert sorted(itertools.chain(*(row for _, seen in ended for row in seen.rows))) == list(range(100))
    assert steps > 5


def test_rows_that_changed_are_refused_by_the_rank_that_read_them(tmp_path):
    def changed(rank, ranks):
        rows = list(uneven(rank, ranks))
        return iter([*rows[:-1], rows[0]] if rank else rows)

    in_threads(lambda own: fitted(own, Stream(uneven, shuffle=200), tmp_path, stop=5), 2)
    with pytest.raises(TrainingError, match="another row before batch 5"):
        in_threads(lambda own: fitted(own, Stream(changed, shuffle=200), tmp_path, resume=True), 2)


@pytest.mark.parametrize("sharded", [True, False])
def test_workers_take_a_stream_that_each_rank_reads_as_a_whole(sharded):
    """Where ranks read parts, batches would be others with workers than without: that is refused."""

    def work(communicator):
        stream = Stream(lambda rank=0, ranks=1: uneven(rank, ranks), sharded=sharded)
        return fitted(communicator, stream, workers=1, epochs=0)

    if not sharded:
        in_threads(work, 2)
        return
    with pytest.raises(
        TrainingError, match="workers: expected a stream that each rank reads as a whole, found one"
    ):
        in_threads(work, 2)


def test_validation_and_evaluation_are_of_all_parts(source):
    whole = trainer()
    expected = whole.evaluate(ROWS)

    def work(communicator):
        made = trainer(program=fb.train.DataParallel(fb.compile(model_of(), "numpy"), communicator))
        return made.evaluate(source(9))

    from tests.train.small import model as model_of  # noqa: PLC0415

    first, second = in_threads(work, 2)
    assert first == second and all(np.isclose(first[name], expected[name]) for name in expected)
    ranks = in_threads(lambda own: fitted(own, source(9), validation=source(9)), 2)
    assert_ranks_agree(ranks)
    made, _ = ranks[0]
    found = trainer(program=made.program).evaluate(ROWS)
    assert np.isclose(found["loss"], made.figures["validation_loss"])


def test_a_bad_row_is_named_with_its_rank_or_file(source):
    bad = [*ROWS[:70], ([0.0, 1.0], 1), *ROWS[71:]]

    def function(rank, ranks):
        return iter(bad[50 * rank : 50 * rank + 50])

    def files(shuffle):
        stream = in_pieces([40, 20, 40], shuffle)
        stream._functions = (lambda number: bad[number],)
        return stream

    is_function = source is SOURCES["function"]
    given = Stream(function, shuffle=9) if is_function else files(9)
    found = "is row 20 of the stream of rank 1" if is_function else "is row 10 of file 2"
    with pytest.raises(ExampleError) as caught:
        in_threads(lambda own: fitted(own, given), 2)
    assert any(note.endswith(found) for note in caught.value.__notes__), caught.value.__notes__
    with pytest.raises(ExampleError) as caught:
        in_threads(lambda own: fitted(own, ROWS, validation=given), 2)
    assert any(note.endswith(found) for note in caught.value.__notes__), caught.value.__notes__


# libraries


@pytest.fixture
def folder(tmp_path):
    """Three files of Parquet, of 50, 30 and 20 rows in row groups of 20."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files, first = tmp_path / "files", 0
    files.mkdir()
    for name, count in (("a", 50), ("b", 30), ("c", 20)):
        rows = [{"x": x, "label": label} for x, label in ROWS[first : first + count]]
        parquet.write_table(pa.Table.from_pylist(rows), files / f"{name}.parquet", row_group_size=20)
        first += count
    return files


def test_ranks_read_row_groups_of_their_own(folder):
    dataset = pytest.importorskip("pyarrow.dataset")
    stream = Stream(dataset.dataset(folder), shuffle=9)
    parts = [stream.shard(rank, 2, 8) for rank in range(2)]
    assert [[(piece.file[-9:], piece.before, piece.rows) for piece in part._pieces] for part in parts] == [
        [("a.parquet", 0, 20), ("a.parquet", 20, 20), ("a.parquet", 40, 10)],
        [("b.parquet", 0, 20), ("b.parquet", 20, 10), ("c.parquet", 0, 20)],
    ]
    rows = [[(row["x"], row["label"]) for row in part] for part in parts]
    assert [numbers_of(own) for own in rows] == [[*range(50)], [*range(50, 100)]]
    three = [stream.shard(rank, 3, 9) for rank in range(3)]  # of which the groups are cut
    rows = [[(row["x"], row["label"]) for _, own in part.epoch(0, 0, 9) for row in own] for part in three]
    assert sorted(map(len, rows)) == [33, 33, 34]
    assert sorted(numbers_of(itertools.chain(*rows))) == list(range(100))


def test_rows_of_a_group_that_is_cut_stay_in_arrows_memory(folder):
    from foldbatch.trees.given import ArrowRows  # noqa: PLC0415

    dataset = pytest.importorskip("pyarrow.dataset")
    (first, *_) = Stream(dataset.dataset(folder), shuffle=9).shard(1, 3, 9)._pieces
    assert first.rows == 7 and all(isinstance(rows, ArrowRows) for rows in first.read())


def test_data_sets_of_hugging_face_are_cut_where_that_changes_no_row():
    datasets = pytest.importorskip("datasets")
    distributed = pytest.importorskip("datasets.distributed")
    held = datasets.Dataset.from_list([{"n": n} for n in range(30)])
    streaming = held.to_iterable_dataset(num_shards=3)

    def cut(source, ranks=2):
        return [Stream(source).shard(rank, ranks, 8) for rank in range(ranks)]

    changed = streaming.map(lambda row: {"n": row["n"] + 1}).filter(lambda row: row["n"] % 3)
    for source in (streaming, streaming.with_format("arrow"), changed, changed.select_columns(["n"])):
        parts = cut(source)
        assert [part.ranks for part in parts] == [2, 2] and all(len(list(part)) > 5 for part in parts)
        rows = [row["n"] for part in parts for row in part]
        assert sorted(rows) == sorted(row["n"] for row in Stream(source))
    whole = [
        streaming.take(9),
        streaming.skip(9),
        streaming.map(lambda row, place: {"n": place}, with_indices=True),
        streaming.map(lambda rows: rows, batched=True),
        streaming.shuffle(seed=1, buffer_size=4),
        distributed.split_dataset_by_node(streaming, 0, 2),
    ]
    for source in whole:
        assert [part.ranks for part in cut(source)] == [1, 1]
    assert [part.ranks for part in cut(streaming, 4)] == [1] * 4


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_read_their_parts_and_go_on_to_the_bit(launcher, tmp_path, request):
    names = ["function"]
    if find_spec("pyarrow"):
        request.getfixturevalue("folder")
        names.append("files")
    done = launched(launcher, "tests.train.sharding", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for name in names:
        ranks = [np.load(tmp_path / f"{name}-{rank}.npz") for rank in range(2)]
        rows = np.concatenate([rank["rows"] for rank in ranks])
        assert sorted(rows.tolist()) == sorted([*range(100)] * 2)
        assert (ranks[0]["counts"] + ranks[1]["counts"]).tolist() == ranks[0]["sizes"].tolist()
        for key in ranks[0].files:
            if key.startswith(("whole ", "resumed ")):
                np.testing.assert_array_equal(ranks[0][key], ranks[1][key])
            if key.startswith("whole "):
                np.testing.assert_array_equal(ranks[0][key], ranks[0][key.replace("whole", "resumed")])
