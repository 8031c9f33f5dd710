"""Workers: batches that processes plan give the same bits, errors name examples, and no process is left."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines import threads
from foldbatch.engines.batch import Planned
from foldbatch.engines.carried import arrived, carried
from foldbatch.errors import (
    ExampleError,
    ExampleTypeError,
    ModelError,
    ProcessError,
    SlowPathWarning,
    TrainingError,
)
from foldbatch.program.opened import Opened, described
from foldbatch.train import Accuracy, Checkpoints, DataParallel, LambdaCallback, Stream, Trainer, prefetched
from foldbatch.train.workers import RemoteError
from tests.backends import lacking
from tests.communicators.threads import in_threads
from tests.knobs import knobs
from tests.train import small, worked
from tests.train.small import assert_same

pytestmark = pytest.mark.slow

DOORS = {"blocks": worked.block, "walk": lambda: worked.walk}


@pytest.fixture(autouse=True)
def no_worker_is_left():
    yield
    gc.collect()
    assert multiprocessing.active_children() == []


def compiled(door, backend="numpy", **options):
    return fb.compile(DOORS[door](), backend, fresh=True, seed=1, **options)


def dense(gradients):
    return {name: np.asarray(gradients[name]) for name in gradients}


def assert_runs_alike(program, planned, other):
    for weights in (None, np.arange(len(planned)) / 3):
        (loss, gradients), (again, same) = (
            program.value_and_grad(batch, step=2, weights=weights) for batch in (planned, other)
        )
        assert loss == again
        for name, array in dense(gradients).items():
            np.testing.assert_array_equal(dense(same)[name], array)
    results, same = (program.run(batch, losses=True, metrics=True) for batch in (planned, other))
    assert results.loss == same.loss and results.metrics["classes"].labels == same.metrics["classes"].labels
    np.testing.assert_array_equal([*results], [*same])
    np.testing.assert_array_equal(results.metrics["classes"].values, same.metrics["classes"].values)


# -- without processes


OPTIONS = [{}, {"threads": 3}, {"share": "subtrees"}, {"batched": False}, {"debug": True}]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("backend", ["numpy", "llvm", "cuda-on-cpu"])
def test_a_batch_that_was_carried_runs_as_the_one_that_was_planned(door, options, backend):
    if lacking(backend) or (backend == "cuda-on-cpu" and options):
        pytest.skip(lacking(backend) or "one way is enough there")
    program, examples = compiled(door, backend, **knobs({"threads": 1} | options)), worked.nests(20)
    program.value_and_grad(examples)
    with mock.patch.multiple(threads, CALLS_PER_PART=3, MULTIPLICATIONS_PER_PART=1):
        planned = program.plan(examples)
    parts = sent(program, planned)
    assert len(parts) == len(planned.parts)
    assert (len(parts) > 1) == (options.get("threads") == 3 or "batched" in options)
    assert_runs_alike(program, planned, Planned(parts, program._ready))
    for trace, other in zip(Planned(parts, "").traces, planned.traces, strict=True):
        assert [rows.tolist() for rows in trace.calls] == [rows.tolist() for rows in other.calls]
        assert trace.result == other.result


def sent(program, planned):
    """Return the parts of a plan as another process would have them."""
    headers, arrays = carried(planned.parts)
    return arrived(headers, [array.copy() for array in arrays], program.model, program.model.form)


def test_data_of_any_kind_are_carried():
    """Floats, rows of several numbers, lists of any length, and calls that are shared."""
    numbers = fb.Map(fb.Vector(2)) >> fb.Sum()
    model = fb.Record({"x": numbers, "k": fb.OneHot(4), "d": fb.Scalar("float64")})
    program = fb.compile(model, "numpy")
    planned = program.plan([{"x": [[i, j] for j in range(i)], "k": i % 3, "d": i / 7} for i in range(6)])
    other = Planned(sent(program, planned), program._ready)
    for result, same in zip(program.run(planned), program.run(other), strict=True):
        np.testing.assert_equal(same, result)
    for trace, same in zip(planned.traces, other.traces, strict=True):
        for columns, same_columns in zip(trace.feeds, same.feeds, strict=True):
            assert [data.tolist() for data in columns] == [data.tolist() for data in same_columns]


@pytest.mark.parametrize("door", DOORS)
def test_what_was_opened_plans_as_the_program_and_tells_what_is_new(door):
    program = compiled(door)
    first = described(program)
    program.value_and_grad(worked.nests(20))
    other = Opened(pickle.loads(pickle.dumps(described(program))))
    planned = program.plan(worked.nests(8, 1))
    for part, same in zip(planned.parts, other.plan(worked.nests(8, 1)), strict=True):
        plan, again = part.batch.schedule, same.batch.schedule
        assert plan.steps == again.steps and plan.row_of.tolist() == again.row_of.tolist()
    early = Opened(first)
    assert (early.plan(worked.nests(20)) is None) == (door == "walk")
    assert (early.plan([("a", 0)]) is None) == (door == "walk")  # it has other cells by now


def test_the_numbers_of_parameters_are_not_sent():
    program = fb.compile(fb.Scalar("int32") >> fb.Embedding(10_000, 8), "numpy")
    program.run([1])
    assert len(pickle.dumps(described(program))) < 20_000


def test_a_stream_is_read_in_turn_by_several():
    for shuffle, completed in ((0, 0), (7, 2), (50, 1), (1000, 3)):
        stream = Stream(worked.rows, shuffle=shuffle)
        stream.expect(50)
        want = [*stream.epoch(3, 1, 4, completed)]
        for readers in (1, 2, 3):
            copies = [pickle.loads(pickle.dumps(stream)) for _ in range(readers)]
            read = [[*x.epoch(3, 1, 4, completed, turn=(readers, k))] for k, x in enumerate(copies)]
            assert [
                batch for k in range(len(want)) for batch in read[k % readers][k // readers :][:1]
            ] == want


def test_a_stream_in_another_process_keeps_its_functions_and_what_is_known_of_it():
    stream = Stream(worked.rows, shuffle=3).map(len).map(str)
    assert pickle.loads(pickle.dumps(stream)).rows is None
    assert [*stream] == ["2"] * 50
    other = pickle.loads(pickle.dumps(stream))
    assert ([*other], other.rows, other.shuffle) == (["2"] * 50, 50, 3)


# -- with processes


def sums(program, plans):
    return [float(program.value_and_grad(plan, step=0)[0]) for plan in plans]


@pytest.mark.parametrize(
    ("door", "backend", "source", "workers"),
    [
        ("walk", "llvm", worked.batches, 2),
        ("walk", "numpy", worked.batches(), 1),
        ("blocks", "numpy", worked.batches(), 2),
    ],
)
def test_prefetched_batches_are_those_of_this_process(door, backend, source, workers):
    """Of a walk, the first ones bring calls that no worker has known."""
    if backend == "llvm":
        pytest.importorskip("llvmlite")
    program = compiled(door, backend)
    want = sums(program, worked.batches())
    other = compiled(door, backend)
    plans = prefetched(other, source, ahead=3, workers=workers)
    kept = []
    assert sums(other, [kept.append(plan) or plan for plan in plans]) == want
    assert {type(plan) for plan in kept} == {Planned}
    assert sums(other, kept[::-1]) == want[::-1]  # their memory is no other batch's yet


def trained(door="blocks", source="list", backend="numpy", folder=None, epochs=2, resume=False, **options):
    """Return a trainer that has fitted."""
    callbacks = [*options.pop("callbacks", ())]
    if folder is not None:
        callbacks.append(Checkpoints(folder, every=1))
    options = {"batch_size": 4, "seed": 5, "metrics": [Accuracy("classes")]} | options
    made = Trainer(compiled(door, backend), fb.Adam(0.05), callbacks=callbacks, **options)
    weights = {"sample_weight": np.arange(50) + 1.0} if source == "weighted" else {}
    examples = Stream(worked.rows, shuffle=9) if source == "stream" else worked.nests(50)
    made.fit(examples, worked.nests(9, 1), epochs=epochs, resume=resume, **weights)
    return made


@pytest.mark.parametrize(
    ("door", "source", "backend", "options"),
    [
        ("blocks", "list", "llvm", {"workers": 2}),
        ("walk", "stream", "numpy", {"workers": 2, "accumulate": 2}),
        ("walk", "weighted", "numpy", {"workers": 1}),
    ],
)
def test_training_does_not_depend_on_the_number_of_workers(door, source, backend, options):
    if backend == "llvm":
        pytest.importorskip("llvmlite")
    whole = trained(door, source, backend, **(options | {"workers": 0}))
    seen = []
    look = LambdaCallback(on_step_start=lambda t: seen.append((t.batch.indices, [*t.batch.examples])))
    assert_same(whole, trained(door, source, backend, callbacks=[look], **options))
    by_number = worked.nests(50)
    assert seen and all(examples == [by_number[i] for i in indices] for indices, examples in seen)


class InterruptedTrainingError(Exception):
    """Ends a training."""


def test_a_training_goes_on_with_another_number_of_workers(tmp_path):
    def stop(trainer):
        if trainer.steps == 17:
            raise InterruptedTrainingError

    with pytest.raises(InterruptedTrainingError):
        trained(source="stream", folder=tmp_path, workers=2, callbacks=[LambdaCallback(on_step_start=stop)])
    resumed = trained(source="stream", folder=tmp_path, workers=1, resume=True)
    assert_same(trained(source="stream"), resumed)


def test_ranks_have_workers_of_their_own():
    """Each plans its share of the batch, cut into two parts, of a stream that all read."""

    def work(communicator, workers):
        program = DataParallel(fb.compile(small.model(), "numpy", fresh=True), communicator)
        made = Trainer(program, fb.SGD(0.1), batch_size=6, workers=workers, accumulate=2)
        made.fit(Stream(small.rows, shuffle=9), epochs=1)
        return made.history[-1]["loss"], dict(made.program.params)

    for (loss, params), (alone_loss, alone) in zip(
        in_threads(lambda x: work(x, 1), 2), in_threads(lambda x: work(x, 0), 2), strict=True
    ):
        assert loss == alone_loss
        for name, array in alone.items():
            np.testing.assert_array_equal(params[name], array)


def test_an_error_names_the_example_and_has_the_traceback_of_the_worker():
    plans = prefetched(compiled("blocks"), worked.broken, workers=2)
    assert [len(next(plans)), len(next(plans))] == [3, 2]
    with pytest.raises(ExampleTypeError, match="at example 1") as caught:
        next(plans)
    assert isinstance(caught.value.__cause__, RemoteError)
    assert "in _planned" in str(caught.value.__cause__)
    assert multiprocessing.active_children() == []


def test_an_error_of_a_training_counts_examples_as_the_user_does():
    examples, errors = [*small.EXAMPLES], []
    examples[13] = ([1.0, 2.0], 1)
    for options in ({}, {"workers": 1}):
        with pytest.raises(ExampleError) as caught:
            small.trainer(**options).fit(examples, epochs=1)
        errors.append([str(caught.value), caught.value.__notes__])
    assert errors[0] == errors[1] and "13" in str(errors[1])


def test_a_worker_that_dies_is_told_in_a_sentence():
    batches = [[("a", 0)], [(("h", "h"), 0)], [("b", 0)]]
    program = fb.compile(worked.dying, "numpy")
    program.warm(worked.nests(9))
    expected = (
        "prefetched workers: expected processes that prepare batches, found worker 1 of 2 ended with st"
    )
    with pytest.raises(ProcessError, match=expected):
        sums(program, prefetched(program, batches, workers=2))


def test_a_killed_worker_leaves_a_checkpoint_of_the_last_step(tmp_path):
    def kill(trainer):
        if trainer.steps == 3:
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(ProcessError, match=r"ended by SIGKILL; go on from .*last.safetensors with resume"):
        trained(folder=tmp_path, workers=1, epochs=3, callbacks=[LambdaCallback(on_step_end=kill)])
    assert_same(trained(epochs=3), trained(folder=tmp_path, epochs=3, resume=True))


def test_what_no_other_process_can_open_is_refused_before_one_begins():
    local = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x)) >> fb.Sum(), "numpy")
    with pytest.raises(ModelError, match=r"prefetched workers: .* define functions .* or leave workers at 0"):
        next(prefetched(local, [[[1]]], workers=1))
    walk = fb.compile(lambda example: worked.walk(example), "numpy")
    with pytest.raises(ModelError, match=r"prefetched workers: .* or leave workers at 0"):
        next(prefetched(walk, [worked.nests(2)], workers=1))
    trainer = Trainer(compiled("blocks"), fb.SGD(0.1), workers=1)
    with pytest.raises(TrainingError, match="Trainer workers: expected examples that pickle, found .*lambda"):
        trainer.fit(Stream(lambda: worked.rows()), epochs=1)
    plans = prefetched(compiled("walk"), [worked.nests(1), [(("a", lambda: 0), 0)]], workers=1)
    with pytest.raises(TrainingError, match="prefetched workers: expected examples that pickle"):
        sums(compiled("walk"), plans)
    for wrong in (-1, 1.5, True):
        with pytest.raises(TrainingError, match="workers"):
            Trainer(compiled("blocks"), fb.SGD(0.1), workers=wrong)


def test_a_model_that_reads_what_this_process_alone_has_set_is_refused(monkeypatch):
    program = fb.compile(worked.remembering, "numpy")
    program.warm(worked.nests(9))
    monkeypatch.setitem(worked.SEEN, "label", 2)
    with pytest.raises(TrainingError, match="expected examples that are traced alike in each process"):
        next(prefetched(program, [worked.nests(9)], workers=1))


def test_batches_of_a_walk_that_asks_for_numbers_are_for_this_process():
    pytest.importorskip("greenlet")
    examples, program = worked.nests(9), fb.compile(worked.asking, "numpy")
    want = sums(program, [examples] * 2)
    plans = [*prefetched(fb.compile(worked.asking, "numpy"), [examples] * 2, workers=1)]
    assert sums(program, plans) == want
    trainer = Trainer(program, fb.SGD(0.1), workers=2)
    with pytest.warns(SlowPathWarning, match="Trainer workers: expected a model whose calls follow"):
        trainer.fit(examples, epochs=1)
    assert trainer.figures["loss"] * 9 == want[0]


# -- and none of them is left


def gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"  # nobody waits for it


@pytest.mark.parametrize(("number", "source"), [(signal.SIGKILL, "stream"), (signal.SIGINT, "list")])
def test_workers_end_with_their_parent(number, source):
    command = [sys.executable, "-m", "tests.train.worked", source]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, start_new_session=True) as process:
        children = [int(word) for word in process.stdout.readline().split()]
        assert len(children) == 2 and not any(map(gone, children))
        if number == signal.SIGINT:  # as Ctrl-C in a terminal, to all of them
            os.killpg(process.pid, number)
        else:
            process.kill()
        _, errors = process.communicate(timeout=60)
    begun = time.monotonic()
    while not all(map(gone, children)):
        assert time.monotonic() - begun < 60
        time.sleep(0.02)
    if number == signal.SIGINT:
        assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")
    else:
        assert errors == ""
