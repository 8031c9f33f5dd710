"""Several ranks train as one does, and agree."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.communicators import Alone
from foldbatch.errors import ExampleError, ProcessError, SharedDeviceWarning, TrainingError
from foldbatch.params.parameters import SparseRows
from foldbatch.train import DataParallel, LambdaCallback
from foldbatch.train.parallel import check_alike, counts_of, deal, summed, warn_of_shared_gpus
from foldbatch.train.resuming import digests, read_state, text_of
from tests.communicators.threads import TRANSPORTS, in_threads, transport
from tests.train.small import DEV, EXAMPLES, figures, model, trainer

WORDS = fb.Map(fb.Scalar("int32") >> fb.Embedding(30, 3, name="words") >> fb.Dropout(0.3)) >> fb.Sum()
TAGGED = WORDS >> fb.Linear(1, name="out") >> fb.Function(lambda x: fb.ops.mean(x * x)) >> fb.Loss()
rng = np.random.default_rng(1)
SENTENCES = [rng.integers(0, 30, size=n).tolist() for n in (9, 1, 4, 4, 2, 7, 3)]


@pytest.fixture(autouse=True, params=TRANSPORTS)
def connected(request):
    """All ranks of these tests are threads, of one transport or another."""
    before = transport.set(request.param)
    yield request.param
    transport.reset(before)


def fitted(communicator, folder=None, *, epochs=3, resume=False, callbacks=(), program=None, **options):
    program = program or fb.compile(model(), "numpy", threads=1)
    made = trainer(folder, program=DataParallel(program, communicator), callbacks=callbacks, **options)
    made.fit(EXAMPLES, DEV, epochs=epochs, resume=resume)
    return made


def assert_close(one, other):
    for name, array in one.program.params.items():
        np.testing.assert_allclose(other.program.params[name], array, rtol=2e-5, atol=1e-6)


def assert_equal(ranks):
    for other in ranks[1:]:
        for name, array in ranks[0].program.params.items():
            np.testing.assert_array_equal(other.program.params[name], array)
        assert figures(other) == figures(ranks[0])


def test_ranks_have_the_same_bits_in_every_run_and_those_of_one_process_to_rounding():
    """With Dropout, which is keyed by the example's number in the whole batch."""
    alone = fitted(Alone())
    ranks = in_threads(fitted, 3)
    assert_equal([*ranks, *in_threads(fitted, 3)])
    assert_close(alone, ranks[0])
    for one, other in zip(figures(alone), figures(ranks[0]), strict=True):
        assert one.keys() == other.keys() and all(np.isclose(one[name], other[name]) for name in one)


@pytest.mark.parametrize("sizes", [range(7), range(2)])
def test_sums_of_dense_and_sparse_gradients(sizes):
    """Also where a rank has no example at all."""
    batch = [SENTENCES[i] for i in sizes]
    loss, whole = fb.compile(TAGGED, "numpy").value_and_grad(batch)

    def work(communicator):
        parallel = DataParallel(fb.compile(TAGGED, "numpy"), communicator)
        return (*parallel.value_and_grad(batch), parallel.sent, parallel.program.steps_drawn)

    answers = in_threads(work, 3)
    for value, gradients, sent, drawn in answers:
        assert np.isclose(value, loss) and value == answers[0][0] and sent > 0 and drawn == 1
        assert list(gradients) == list(whole)
        rows, expected = gradients["words.weight"], whole["words.weight"]
        np.testing.assert_array_equal(rows.rows, expected.rows)
        np.testing.assert_allclose(rows.values, expected.values, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(rows.values, answers[0][1]["words.weight"].values)
        np.testing.assert_allclose(gradients["out.weight"], whole["out.weight"], rtol=1e-5)
        assert gradients["out.weight"].dtype == np.float32


def test_a_training_goes_on_with_another_number_of_processes(tmp_path):
    whole = fitted(Alone(), epochs=4)
    in_threads(lambda communicator: fitted(communicator, tmp_path, epochs=2), 2)
    ranks = in_threads(lambda communicator: fitted(communicator, tmp_path, epochs=3, resume=True), 3)
    assert_equal(ranks)
    last = fitted(Alone(), tmp_path, epochs=4, resume=True)
    assert_close(whole, last)
    assert last.steps == whole.steps


def test_rank_0_alone_writes_and_all_have_the_best_parameters(tmp_path):
    def work(communicator):
        own = tmp_path / str(communicator.rank)
        log = fb.train.CSVLog(own / "epochs.csv")
        if not communicator.rank:
            own.mkdir()
        made = fitted(communicator, own, callbacks=[log])
        made.restore_best()
        return made

    ranks = in_threads(work, 2)
    assert (tmp_path / "0" / "last.safetensors").exists() and (tmp_path / "0" / "epochs.csv").exists()
    assert not (tmp_path / "1").exists()
    assert_equal(ranks)


def test_an_error_of_one_rank_ends_all_and_leaves_a_checkpoint(tmp_path):
    """The error comes in the second epoch, in the share of the rank that drew the example."""
    calls = []

    def work(communicator):
        def fail(made):
            if communicator.rank == 1 and made.steps == 7:
                raise ExampleError("root", "a label", "none")

        try:
            fitted(communicator, tmp_path, callbacks=[LambdaCallback(on_step_start=fail)])
        except (ExampleError, ProcessError) as error:
            calls.append((communicator.rank, str(error)))

    in_threads(work, 3)
    told = dict(calls)
    assert told[1] == "root: expected a label, found none"
    assert "rank 1: expected a process that goes on, found ExampleError: root: expected" in told[0]
    assert f"go on from {tmp_path / 'last.safetensors'}" in told[0] and told[2] == told[0]
    assert read_state(tmp_path / "last.safetensors")["steps"] == 7
    assert_close(fitted(Alone()), fitted(Alone(), tmp_path, resume=True))


def test_a_rank_that_ends_ends_all_with_a_checkpoint(connected, tmp_path):
    def work(communicator):
        def end(made):
            if communicator.rank == 1 and made.steps == 7:
                communicator.abort("no memory")

        with pytest.raises(ProcessError) as error:
            fitted(communicator, tmp_path, callbacks=[LambdaCallback(on_step_start=end)])
        return str(error.value)

    first, second = in_threads(work, 2)
    found = {  # torch.distributed tells which rank it was, and why
        "barrier": "rank 0 of 2: expected all processes to go on, found a rank that ended",
        "gloo": "rank 1: expected a process that goes on, found no memory",
    }
    assert first.startswith(f"{found[connected]}; go on from")
    assert "no memory" in second
    # rank 0 may still have been in the last exchange of the step before
    assert read_state(tmp_path / "last.safetensors")["steps"] in (6, 7)
    assert_close(fitted(Alone()), fitted(Alone(), tmp_path, resume=True))


def test_all_stop_where_one_clock_says_so():
    def work(communicator):
        stop = LambdaCallback(on_epoch_end=lambda trainer: trainer.stop("time is over"))
        return fitted(communicator, callbacks=[stop] if communicator.rank else []).epoch

    assert in_threads(work, 2) == [1, 1]


def test_ranks_that_differ_are_refused():
    def work(communicator):
        program = fb.compile(model(), "numpy", seed=communicator.rank)
        with pytest.raises(TrainingError, match="another model at rank 1 than at rank 0, and another"):
            fitted(communicator, program=program)

    in_threads(work, 2)


def change(attribute, value, step=7):
    """A callback that changes the optimizer at a step of the second epoch."""
    return LambdaCallback(
        on_gradients=lambda made: made.steps == step and setattr(made.optimizer, attribute, value)
    )


def spoil(made):
    if made.steps == 7:
        made.program.params["out.bias"] = [3.0, 3.0]


class Backwards(fb.train.Sampler):
    def epoch(self, number):
        return super().epoch(number)[:: -1 if number else 1]


OTHER_LABEL = [*EXAMPLES[:4], (EXAMPLES[4][0], 1 - EXAMPLES[4][1]), *EXAMPLES[5:]]
DRIFTS = {  # what rank 1 does otherwise, what all are told, and after how many epochs
    "rate": ({"optimizer": fb.Adam(0.2)}, "optimizer's lr 0.1 at rank 0, 0.2 at rank 1", 0),
    "setting": ({"optimizer": fb.Adam(0.1, eps=1e-4)}, "optimizer's eps 1e-08 at rank 0, 0.0001 at rank 1", 0),
    "decay": ({"optimizer": fb.Adam(0.1, weight_decay=0.5)}, "optimizer's weight_decay", 0),
    "factors": ({"optimizer": fb.Adam(0.1, lr_factors={"out": 0.5})}, "optimizer's lr_factors {} at rank 0", 0),
    "class": ({"optimizer": fb.SGD(0.1)}, "optimizer Adam at rank 0, SGD at rank 1", 0),
    "seed": ({"seed": 4}, "sampler of seed 3 .* of seed 4", 0),
    "batch": ({"batch_size": 5}, "sampler of seed 3 and digest", 0),
    "epochs": ({"epochs": 4}, "number of epochs 3 at rank 0, 4 at rank 1", 0),
    "examples": ({"examples": OTHER_LABEL}, "other examples at rank 1 from number 4 on", 0),
    "fewer": ({"examples": EXAMPLES[1:]}, "number of examples 20 at rank 0, 19 at rank 1", 0),
    "dev": ({"dev": DEV[::-1]}, "other validation examples at rank 1 from number 0 on", 0),
    "no dev": ({"dev": None}, "number of validation examples 6 at rank 0, 0 at rank 1", 0),
    "clip": ({"callbacks": [fb.train.ClipGradients(1.0)]}, "ClipGradients's max_norm none at rank 0", 0),
    "rate later": ({"callbacks": [change("lr", 0.5)]}, "another parameter out.weight at rank 1", 1),
    "decay later": ({"callbacks": [change("weight_decay", 0.5)]}, "optimizer's weight_decay 0.0 at rank 0", 1),
    "parameter": ({"callbacks": [LambdaCallback(on_step_end=spoil)]}, "another parameter out.bias at rank 1", 1),
    "order": ({"sampler": Backwards}, "another order of examples in epoch 2 at rank 1", 1),
    "at the end": (
        {"callbacks": [LambdaCallback(on_fit_end=lambda made: setattr(made.optimizer, "lr", 0.5))]},
        "optimizer's lr .* at rank 0, 0.5 at rank 1", 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("drift", DRIFTS)
def test_ranks_that_drift_apart_are_told_so_at_the_latest_at_the_epochs_end(drift, tmp_path):
    """All of them, with what differs and where; and nothing of it is kept."""
    odd, told, epochs = DRIFTS[drift]

    def work(communicator):
        given = dict(odd) if communicator.rank else {}
        sampler = given.pop("sampler", fb.train.Sampler)
        if drift == "order":
            given |= {"sampler": sampler(np.ones(20, int), 4, seed=3), "batch_size": None}
        examples, dev = given.pop("examples", EXAMPLES), given.pop("dev", DEV)
        wanted = given.pop("epochs", 3)
        program = DataParallel(fb.compile(model(), "numpy", threads=1), communicator)
        made = trainer(tmp_path, program=program, **given)
        with pytest.raises(TrainingError, match=f"training: expected all ranks to have the same, .*{told}"):
            made.fit(examples, dev, epochs=wanted)
        return made.epoch

    assert in_threads(work, 2) == [epochs] * 2
    kept = tmp_path / "last.safetensors"
    assert (read_state(kept)["epoch"] if kept.exists() else 0) == epochs


def test_examples_to_prepare_are_compared():
    def work(communicator):
        parallel = DataParallel(fb.compile(WORDS, "numpy"), communicator)
        with pytest.raises(TrainingError, match="other examples at rank 1 from number 1 on"):
            parallel.prepare([[1], [2 + communicator.rank]])

    in_threads(work, 2)


def test_words_that_ranks_number_unlike_are_told():
    def work(communicator):
        words = fb.trees.Vocabulary(["ab", "ba"][:: 1 - 2 * communicator.rank])
        program = fb.compile(fb.InputTransform(words) >> fb.Scalar("int32") >> fb.Embedding(3, 2), "numpy")
        with pytest.raises(TrainingError, match="other traces at rank 1 from number 1 on"):
            DataParallel(program, communicator).prepare(["x", "ab"])

    in_threads(work, 2)


def test_a_loop_of_ones_own_can_compare():
    def work(communicator):
        parallel = DataParallel(fb.compile(WORDS, "numpy"), communicator)
        parallel.check_same()
        parallel.program.params["words.weight"][3] = communicator.rank
        with pytest.raises(TrainingError, match="another parameter words.weight at rank 1 than at rank 0"):
            parallel.check_same()

    in_threads(work, 2)


def test_all_ranks_get_all_traces():
    def work(communicator):
        parallel = DataParallel(fb.compile(WORDS, "numpy"), communicator)
        prepared = parallel.prepare(SENTENCES)
        return [result.tolist() for result in parallel.program.run(prepared)]

    expected = [result.tolist() for result in fb.compile(WORDS, "numpy").run(SENTENCES)]
    assert in_threads(work, 2) == [expected, expected]

    def objects(communicator):
        parallel = DataParallel(fb.compile(fb.Identity(), "numpy"), communicator)
        return parallel.program.run(parallel.prepare(SENTENCES))

    assert all(a is b for each in in_threads(objects, 2) for a, b in zip(each, SENTENCES, strict=True))


def test_an_example_is_named_by_its_number_in_the_training_set():
    bad = [*EXAMPLES[:13], ([1.0, 2.0], 1), *EXAMPLES[14:]]

    def work(communicator):
        made = trainer(program=DataParallel(fb.compile(model(), "numpy"), communicator))
        with pytest.raises((ExampleError, ProcessError)) as error:
            made.fit(bad, epochs=1)
        return error.value

    errors = [error for error in in_threads(work, 2) if isinstance(error, ExampleError)]
    assert len(errors) == 1
    place = int(str(errors[0]).split("at example ")[1].split()[0].rstrip(":[]"))
    numbers = errors[0].__notes__[0].split("numbers ")[1]
    assert eval(numbers)[place] == 13


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_the_last_callback_at_one_rank_ends_all(rank):
    """A figure that cannot be written, for example; the others must not be waited for."""

    def work(communicator):
        def fail(made):
            if communicator.rank == rank:
                raise OSError("no space left")

        fitted(communicator, epochs=1, callbacks=[LambdaCallback(on_fit_end=fail)])

    with pytest.raises(OSError, match="no space left"):
        in_threads(work, 2)


@pytest.mark.parametrize("ask", ["value_and_grad", "step", "evaluate"])
def test_errors_of_examples_name_the_rank_and_number_them_in_the_whole(ask):
    wrong = [*EXAMPLES[:17], "wrong", *EXAMPLES[18:]]

    def work(communicator):
        program = DataParallel(fb.compile(model(), "numpy"), communicator)
        made = trainer(program=program)
        getattr(program if hasattr(program, ask) else made, ask)(wrong)

    with pytest.raises(ExampleError) as error:
        in_threads(work, 3)
    note = error.value.__notes__[0]
    number = int(str(error.value).split("at example ")[1].split()[0])
    if "numbers" in note:
        assert json.loads(note.split("numbers ")[1])[number] == 17 and "of rank" in note
    else:
        assert int(note.split("number ")[1]) + number == 17


def test_who_learns_between_two_epochs_that_another_rank_failed_is_told_the_checkpoint(tmp_path):
    def work(communicator):
        def fail(made):
            if communicator.rank == 1:
                raise OSError("no space left")

        try:
            fitted(communicator, tmp_path, epochs=2, callbacks=[LambdaCallback(on_epoch_end=fail)])
        except (OSError, ProcessError) as error:
            return str(error)

    assert "last.safetensors with resume=True" in in_threads(work, 2)[0]


@pytest.mark.parametrize(
    ("gpus", "processes", "told"),
    [
        (["a", "b", "a"], [1, 2, 3], ["ranks 0, 2 on one"]),
        (["a", "a", "a"], [1, 1, 1], []),  # threads
        (["", "", ""], [1, 2, 3], []),
        (["a", "a", "b"], [1, 2, 3], ["ranks 0, 1 on one"]),
    ],
)
def test_processes_that_share_a_gpu_are_told_of(gpus, processes, told):
    """All of them, as the first one alone speaks under the command."""

    def work(communicator):
        warn_of_shared_gpus(communicator, gpus[communicator.rank], processes[communicator.rank])

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        in_threads(work, 3)
    assert len(noted) == 3 * len(told)
    for warning in noted:
        assert isinstance(warning.message, SharedDeviceWarning)
        assert told[0] in str(warning.message)


def differences(facts, rows=lambda rank: {}, ranks=3):
    """What each rank is told; they are all told the same."""

    def work(communicator):
        with pytest.raises(TrainingError) as error:
            check_alike(communicator, {**facts(communicator.rank), **rows(communicator.rank)})
        return str(error.value)

    (told,) = set(in_threads(work, ranks))
    assert told.startswith("training: expected all ranks to have the same, found ")
    return told.partition(", found ")[2].partition("; give")[0]


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (lambda rank: {"a": "1", "lr": str(rank == 1)}, "lr False at rank 0 and at rank 2, True at rank 1"),
        (lambda rank: {"lr": str(rank)}, "lr 0 at rank 0, 1 at rank 1, 2 at rank 2"),
        (lambda rank: {"lr": "1"} if rank else {}, "lr none at rank 0, 1 at rank 1 and at rank 2"),
        (lambda rank: {"w": text_of(np.full(2, rank == 2))}, "another w at rank 2 than at rank 0"),
        (
            lambda rank: {name: str(rank) for name in "abcde"},
            ", and ".join(f"{n} 0 at rank 0, 1 at rank 1, 2 at rank 2" for n in "abc")
            + ", and 2 differences more",
        ),
    ],
)
def test_facts_that_differ_are_named(facts, told):
    assert differences(facts) == told


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (lambda rank: [1, 2, 3 + (rank == 1)], "other examples at rank 1 from number 2 on"),
        (lambda rank: [1, rank, 3], "other examples at rank 1 from number 1 on, at rank 2 from number 1 on"),
        (lambda rank: [1] * (2 + (rank == 2)), "number of examples 2 at rank 0 and at rank 1, 3 at rank 2"),
    ],
)
def test_rows_that_differ_are_numbered(rows, told):
    assert differences(lambda rank: {}, lambda rank: {"examples": digests(rows(rank))}) == told


COSTS = st.lists(st.integers(0, 60), max_size=40)


@settings(max_examples=12)
@given(COSTS, st.integers(1, 9))
def test_examples_are_dealt_once_and_no_rank_has_an_example_too_many(costs, ranks):
    shares = deal(costs, ranks)
    assert sorted(place for share in shares for place in share) == list(range(len(costs)))
    assert all(share == sorted(share) for share in shares) and len(shares) == ranks
    loads = [sum(costs[place] for place in share) for share in shares]
    least = max(max(costs, default=0), sum(costs) / ranks)
    assert max(loads) <= 4 / 3 * least + max(costs, default=0) / 3
    for load, share in zip(loads, shares, strict=True):  # without its smallest it was the least loaded
        assert not share or load - min(costs[place] for place in share) <= min(loads)


SIZE = 3
rng_of_exchange = np.random.default_rng(0)
DENSE = rng_of_exchange.normal(size=(SIZE, 7, 5)).astype(np.float32)
TINY = rng_of_exchange.normal(size=(SIZE,))  # scalars of float64, of which some ranks' slices are empty


def rows_of(rank):
    rows = np.flatnonzero(rng_of(rank).random(10) < [0.0, 0.4, 0.9][rank])
    return SparseRows(rows, rng_of(rank).normal(size=(len(rows), 3)).astype(np.float32), (10, 3))


def rng_of(rank):
    return np.random.default_rng(10 + rank)


def exchanged(communicator, *, mixed=False):
    rank = communicator.rank
    rows = rows_of(rank)
    gradients = {"words": rows.dense() if mixed and rank == 1 else rows, "dense": DENSE[rank]}
    gradients["scale"] = np.array(TINY[rank])
    counts = communicator_counts(communicator, gradients)
    return summed(communicator, gradients, counts)


def communicator_counts(communicator, gradients):
    own = np.array(counts_of(gradients))
    return [tuple(part.view(np.int64)) for part in communicator.all_gather(own.view(np.uint8))]


def test_sums_are_those_in_the_order_of_ranks_to_the_bit():
    for sums, _ in in_threads(exchanged, SIZE):
        np.testing.assert_array_equal(sums["dense"], DENSE[0] + DENSE[1] + DENSE[2])
        assert sums["scale"] == TINY[0] + TINY[1] + TINY[2] and sums["scale"].shape == ()
        assert isinstance(sums["words"], SparseRows) and list(sums) == ["words", "dense", "scale"]
        dense = [rows_of(rank).dense() for rank in range(SIZE)]
        np.testing.assert_array_equal(sums["words"].dense(), dense[0] + dense[1] + dense[2])
        touched = set().union(*(rows_of(rank).rows for rank in range(SIZE)))
        assert set(sums["words"].rows) == touched


def test_a_parameter_is_unused_where_no_rank_has_used_it():
    heads = {name: fb.GetItem(1) >> fb.Vector(2) >> fb.Linear(1, name=name) for name in "abc"}
    block = fb.OneOf(fb.GetItem(0), heads) >> fb.Function(fb.ops.sum) >> fb.Loss()

    def work(communicator):
        program = fb.compile(block, "numpy", fresh=True)
        return DataParallel(program, communicator).value_and_grad([("a", [1, 2]), ("b", [1, 2])])[1].unused

    assert in_threads(work, 2) == [{"c.weight", "c.bias"}] * 2
