"""Prepared files: what is read runs as what was written; other models and damage are refused."""

import os
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError, ExampleTypeError, NotWholeWarning, ReadError
from foldbatch.system import files
from foldbatch.train import load_prepared, prepared
from foldbatch.train import save_prepared as prepare
from tests.knobs import knobs
from tests.programs import BlockProgram, programs
from tests.scheduler.test_merge import assert_same


def model(words: int = 9, metric: Any = None, **options: Any) -> fb.Program:
    """Nested lists of word ids: a ragged recursion, a table, a loss, a labelled metric, dropout, objects."""
    tree = fb.ForwardDeclaration(output_type=[3, "float64"], name="tree")
    leaf = fb.Scalar("int32") >> fb.Embedding(words, 3, dtype="float64")
    node = fb.Map(tree()) >> fb.Sum() >> fb.Linear(3, "tanh") >> fb.Dropout(0.8)
    state = fb.OneOf(lambda x: isinstance(x, list), {False: leaf, True: node})
    square = fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    scores = fb.AllOf(fb.GetItem(0), fb.GetItem(1) >> (metric or fb.Identity())) >> fb.Metric("scores")
    tree.resolve_to(
        fb.AllOf(state, fb.InputTransform(str))
        >> fb.AllOf(fb.GetItem(0), fb.GetItem(0) >> square, scores)
        >> fb.GetItem(0)
    )
    return fb.compile(
        fb.AllOf(tree(), fb.InputTransform(repr), every_of(tree)), backend="numpy", **knobs(options)
    )


def every_of(tree: fb.ForwardDeclaration) -> fb.Block:
    items = fb.InputTransform(lambda x: x if isinstance(x, list) else [])
    return items >> fb.AllOf(fb.Map(tree()), fb.Map(fb.AllOf(tree(), fb.InputTransform(str))))


LLVM = pytest.mark.skipif(not find_spec("llvmlite"), reason="llvmlite is not installed")
EXAMPLES: list[Any] = [3, [1, 2], [], [[1, 1], 8, [2, [0, 6], []]], [[[[5]]]], 0]


def file_of(folder: Path) -> Path:
    return folder / "examples.prepared"


def outcome(program: fb.Program, examples: Any) -> Any:
    results = program.run(examples, losses=True, metrics=True)
    metrics = {
        name: (m.values.tolist(), m.examples.tolist(), m.nodes.tolist(), m.labels)
        for name, m in results.metrics.items()
    }
    loss, gradients = program.value_and_grad(examples, step=1)
    dense = {
        n: (g.dense() if isinstance(g, fb.params.SparseRows) else g).tolist() for n, g in gradients.items()
    }
    return results.loss, repr(list(results)), metrics, loss, dense


def test_what_is_read_runs_as_what_was_written(tmp_path):
    """In the program that wrote it, in another of the same model, and in one with another backend."""
    writer = model()
    written = prepare(writer, EXAMPLES, file_of(tmp_path))
    expected = outcome(writer, EXAMPLES)
    assert outcome(writer, written) == expected
    for reader in (writer, model(threads=2), model(layout="producer")):
        read = load_prepared(reader, str(file_of(tmp_path)))
        for old, new in zip(written, read, strict=True):
            assert_same(old.trace, replace(new.trace, result=old.trace.result))
        if reader is writer:
            assert outcome(reader, read) == expected
            assert outcome(reader, [read[3], read[0]]) == outcome(reader, [EXAMPLES[3], EXAMPLES[0]])
    reference = fb.compile(writer.lowered.block, backend="reference")
    found = outcome(reference, load_prepared(reference, file_of(tmp_path)))
    assert found[2]["scores"][1:] == expected[2]["scores"][1:]
    assert found[3] == pytest.approx(expected[3])


@settings(max_examples=9, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(dropout=True))
def test_any_program_reads_what_it_wrote(program: BlockProgram) -> None:
    compiled = fb.compile(program.block, backend="numpy")
    with tempfile.TemporaryDirectory() as folder:
        try:
            prepare(compiled, program.examples, file_of(Path(folder)))
        except ExampleTypeError as error:
            assert "a str, int, float, bool or None" in str(error)
            assert list(Path(folder).iterdir()) == []
            return
        read = load_prepared(compiled, file_of(Path(folder)))
    assert outcome(compiled, read) == outcome(compiled, program.examples)


def test_plain_labels_are_kept_and_others_refused_before_a_file_is_touched(tmp_path):
    plain = ["text \ud800 ü\0", 7, 10**40, -0.0, 0.1 + 0.2, float("inf"), True, None, ""]
    block = fb.Map(fb.AllOf(fb.GetItem(0) >> fb.Scalar(), fb.GetItem(1)) >> fb.Metric("seen")) >> fb.Void()
    program = fb.compile(block, backend="numpy")
    examples = [[(1.0, label)] for label in plain]
    prepare(program, examples, file_of(tmp_path))
    read = program.run(load_prepared(program, file_of(tmp_path)), metrics=True).metrics["seen"].labels
    assert [(type(x), repr(x)) for x in read] == [(type(x), repr(x)) for x in plain]
    before = file_of(tmp_path).read_bytes()
    for label in ((1, 2), [1], np.int64(3), np.float64(3), b"x", {}, object()):
        with pytest.raises(
            ExampleTypeError, match="metric 'seen' at example 1: expected a str, int, float, bool or None"
        ):
            prepare(program, [[(1.0, "fine")], [(1.0, label)]], file_of(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == [file_of(tmp_path).name]
    assert file_of(tmp_path).read_bytes() == before


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (lambda: model(policy="by_depth"), "those for policy 'auto'"),
        (lambda: model(words=8), "those of a model with other data to read"),
        (lambda: fb.compile(fb.Scalar(), backend="numpy"), "those of a model with other cells"),
        (lambda: model(metric=fb.InputTransform(len)), "those of a model with another tracing program"),
    ],
)
def test_another_model_is_refused(tmp_path, other, what):
    prepare(model(), EXAMPLES, file_of(tmp_path))
    with pytest.raises(ExampleError) as caught:
        load_prepared(other(), file_of(tmp_path))
    assert str(caught.value).startswith(
        f"{file_of(tmp_path)}: expected examples prepared by this program, found {what};"
    )


def test_any_damage_is_a_read_error(tmp_path):
    """Cut anywhere, or with a byte changed anywhere; unless that byte has no meaning."""
    program = model()
    written = prepare(program, EXAMPLES, file_of(tmp_path))
    data = file_of(tmp_path).read_bytes()
    rng = np.random.default_rng(0)
    harmless = 0
    for at in rng.integers(0, len(data), 200):
        for damaged in (
            data[:at],
            data[:at] + bytes([data[at] ^ int(rng.integers(1, 256))]) + data[at + 1 :],
        ):
            file_of(tmp_path).write_bytes(damaged)
            try:
                read = load_prepared(program, file_of(tmp_path))
            except ReadError as error:
                assert str(error).startswith(f"{file_of(tmp_path)}: expected a prepared data set that")
            else:  # white space before the header's end, for example
                harmless += 1
                assert len(damaged) == len(data)
                assert [repr(x.trace.calls) for x in read] == [repr(x.trace.calls) for x in written]
    assert harmless < 5


@pytest.mark.parametrize("count", [b"5", b"6000000000000"])
def test_damage_is_found_before_anything_is_made_of_it(tmp_path, count):
    """A shape in the head of an array: of less than there is, and of more than any machine has room for."""
    prepare(model(), EXAMPLES * 500, file_of(tmp_path))
    data = file_of(tmp_path).read_bytes()
    whole = b'"shape":[3000]'
    assert whole in data
    changed = data[8:].replace(whole, b'"shape":[' + count + b"]", 1)
    length = int.from_bytes(data[:8], "little") + len(changed) - len(data) + 8
    file_of(tmp_path).write_bytes(length.to_bytes(8, "little") + changed)
    with pytest.raises(ReadError, match="damaged"):
        load_prepared(model(), file_of(tmp_path))


def rewritten(path: Path, **changes: Any) -> None:
    """Write the file's arrays again, some of them changed: whole as a file, wrong as a data set."""
    arrays, header = files.read(path, prepared.KIND, "")
    files.write(path, prepared.KIND, {**arrays, **changes}, header)


def arrays_of(folder: Path) -> dict[str, Any]:
    return files.read(file_of(folder), prepared.KIND, "")[0]


def test_other_files_and_other_versions_are_read_errors(tmp_path):
    program, path = model(), file_of(tmp_path)
    for content in (b"", b"(3 (4 good) (2 movie))", b"PK\x03\x04" * 10):
        path.write_bytes(content)
        with pytest.raises(
            ReadError, match="found a file that is damaged, or of another kind; prepare it anew"
        ):
            load_prepared(program, path)
    np.savez(path.with_suffix(".npz"), a=np.zeros(3))
    with pytest.raises(ReadError, match="of another kind"):
        load_prepared(program, path.with_suffix(".npz"))
    with pytest.warns(NotWholeWarning):
        program.save(path)
    with pytest.raises(ReadError, match="found a model; give a file of a prepared data set"):
        load_prepared(program, path)
    for header, found in (
        ({"version": 99}, "found version 99"),
        ({"version": 3}, "found one without digests"),
    ):
        files.write(path, prepared.KIND, {}, header)
        with pytest.raises(ReadError, match=found):
            load_prepared(program, path)
    with pytest.raises(FileNotFoundError):
        load_prepared(program, tmp_path / "nowhere")


@pytest.mark.parametrize("backend", ["numpy", pytest.param("llvm", marks=[pytest.mark.llvm, LLVM])])
def test_edited_numbers_are_refused_or_run_as_a_valid_trace_does(tmp_path, backend):
    """Any integer may be changed, with a digest that is right: never a crash, nor a result of the oracle's alone."""
    program = fb.compile(model().lowered.block, backend, threads=1)
    reference = fb.compile(program.lowered.block, "reference", threads=1)
    prepare(program, EXAMPLES, file_of(tmp_path))
    good, header = files.read(file_of(tmp_path), prepared.KIND, "")
    names = [name for name in sorted(good) if name != "results" and good[name].size]
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        arrays = {name: array.copy() for name, array in good.items()}
        for _ in range(1 + rng.integers(2)):
            name = names[rng.integers(len(names))]
            at = rng.integers(arrays[name].size)
            arrays[name].reshape(-1)[at] = rng.choice(
                [-1, 0, 1, 2, 3, 7, 8, 9, 50, 2**31 - 1, -(2**31)]
            ).astype(arrays[name].dtype)
        files.write(file_of(tmp_path), prepared.KIND, arrays, header)
        try:
            read = load_prepared(program, file_of(tmp_path))
        except ReadError as error:
            refused += 1
            assert str(error).startswith(str(file_of(tmp_path)))
            continue
        right = reference.value_and_grad(load_prepared(reference, file_of(tmp_path)), step=1)
        found = program.value_and_grad(read, step=1)
        assert found[0] == pytest.approx(right[0])
        for parameter, gradient in right[1].items():
            dense = [
                g.dense() if isinstance(g, fb.params.SparseRows) else g
                for g in (found[1][parameter], gradient)
            ]
            np.testing.assert_allclose(*dense, atol=1e-12)
    assert 50 < refused < 150


@pytest.mark.parametrize("wrong", [-1, 10**6])
@pytest.mark.parametrize("name", ["calls", "levels", "elements", "feeds"])
def test_numbers_out_of_range_are_a_read_error(tmp_path, name, wrong):
    """What is compiled would follow them out of its arrays."""
    program = model()
    prepare(program, EXAMPLES, file_of(tmp_path))
    whole = file_of(tmp_path).read_bytes()
    arrays = {key: array for key, array in arrays_of(tmp_path).items() if key.startswith(name)}
    assert arrays
    drawn = {
        f"feeds{k}_{i}" for k, keys in enumerate(program.model.keys) for i in keys
    }  # may be any number above
    for key, array in arrays.items():
        if array.size and array.dtype.kind == "i" and (wrong < 0 or key not in drawn):
            changed = array.copy()
            changed.reshape(len(array), -1)[-1, 0] = wrong
            file_of(tmp_path).write_bytes(whole)
            rewritten(file_of(tmp_path), **{key: changed})
            with pytest.raises(ReadError, match="prepare it anew"):
                load_prepared(program, file_of(tmp_path))


def test_every_array_is_of_the_form_that_the_program_reads(tmp_path):
    program = model()
    for name in [column.name for columns in prepared._columns(program.model) for column in columns]:
        for change in (lambda array: array[..., None], lambda array: array.astype("int16")):
            prepare(program, EXAMPLES, file_of(tmp_path))
            rewritten(file_of(tmp_path), **{name: change(arrays_of(tmp_path)[name])})
            with pytest.raises(ReadError, match=f"found arrays that do not fit together: {name} is"):
                load_prepared(program, file_of(tmp_path))


def test_writing_is_all_or_nothing(tmp_path):
    """When it fails in the middle, the file of before is there, and nothing else."""
    program = model()
    prepare(program, EXAMPLES, file_of(tmp_path))
    before = file_of(tmp_path).read_bytes()

    def full(file: int) -> None:
        raise OSError("no space left")

    with mock.patch.object(os, "fsync", full), pytest.raises(OSError, match="no space left"):
        prepare(program, EXAMPLES[:2], file_of(tmp_path))
    with pytest.raises(ExampleError):
        prepare(program, ["text"], file_of(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == [file_of(tmp_path).name]
    assert file_of(tmp_path).read_bytes() == before
    prepare(program, EXAMPLES[:2], file_of(tmp_path))
    assert len(load_prepared(program, file_of(tmp_path))) == 2


def test_the_treebank_is_read_in_little_space(tmp_path, sst_dir):
    """8,544 trees; seconds are printed, not asserted."""
    trees = list(fb.trees.read_sst(sst_dir / "train.txt"))
    words = fb.trees.Vocabulary.count(word for tree in trees for word in tree.words())
    tree = fb.ForwardDeclaration(output_type=(2, 2), name="tree")
    cell = fb.TreeLSTM(2)
    word = (
        fb.GetItem("token")
        >> fb.InputTransform(words.__getitem__)
        >> fb.Scalar("int32")
        >> fb.Embedding(len(words), 2)
    )
    leaf, node = (
        fb.AllOf(word, fb.Record(())) >> cell,
        fb.AllOf(fb.Void(), fb.Record((tree(), tree()))) >> cell,
    )
    state = fb.OneOf(lambda t: t.is_leaf, {True: leaf, False: node})
    loss = fb.AllOf(fb.GetItem(0) >> fb.GetItem(0) >> fb.Linear(5), fb.GetItem(1)) >> fb.Function(
        ops.cross_entropy
    )
    both = fb.AllOf(state, fb.GetItem("label") >> fb.Scalar("int32"))
    tree.resolve_to(both >> fb.AllOf(fb.GetItem(0), loss >> fb.Loss()) >> fb.GetItem(0))
    program = fb.compile(tree() >> fb.GetItem(0), backend="numpy")
    written = prepare(program, trees, file_of(tmp_path))
    start = time.perf_counter()
    read = load_prepared(program, file_of(tmp_path))
    nodes, size = sum(tree.size for tree in trees), file_of(tmp_path).stat().st_size
    print(f"{len(read)} trees, {nodes} nodes, {size} bytes, read in {time.perf_counter() - start:.2f} s")
    assert size < 40 * nodes
    for at in (0, 17, 8543):
        assert_same(read[at].trace, written[at].trace)
    assert program.value_and_grad(read[:50])[0] == program.value_and_grad(trees[:50])[0]
