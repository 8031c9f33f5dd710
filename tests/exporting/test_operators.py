"""What each op is in ONNX: on its own samples, onnxruntime computes what the reference evaluation does."""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs ONNX: pip install -e '.[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install -e '.[onnx]'")
import onnx  # noqa: E402

from foldbatch.exporting.operators import REFUSED, TRANSLATIONS, OnnxScope, OnnxWriter, onnx_type, write  # noqa: E402  # noqa: E402  # noqa: E402
from foldbatch.static.evaluate import evaluate  # noqa: E402
from foldbatch.static.graph import Graph, apply, input_node  # noqa: E402
from foldbatch.static.op import CALL, OPS, UNBATCHED, Sample  # noqa: E402
from foldbatch.types import TensorType  # noqa: E402

ROWS, LENGTHS = 3, (2, 0, 3)  # of calls, and of the elements of each call's sequence
DOUBLE = {
    name: [
        Sample(
            tuple(TensorType(t.shape, "float64") if t.is_float else t for t in sample.types),
            sample.attrs,
            sample.axes,
            sample.positive,
        )
        for sample in op.samples
    ]
    for name, op in OPS.items()
}
SAMPLES = [
    (name, sample)
    for name in TRANSLATIONS
    for sample in (*OPS[name].samples, *DOUBLE[name])
    if str(sample.attrs.get("dtype")) != "float64" or sample in OPS[name].samples
]


def test_every_op_has_a_translation_or_a_reason():
    assert TRANSLATIONS.keys() | REFUSED.keys() == OPS.keys()
    assert not TRANSLATIONS.keys() & REFUSED.keys()


def drawn(generator, sample, type_, rows, bound):
    shape = (*rows, *type_.shape)
    if type_.dtype.startswith("int"):
        return generator.integers(0, bound, shape).astype(type_.dtype)
    if type_.dtype == "bool":
        return generator.random(shape) < 0.5
    return (generator.random(shape) + 0.1 if sample.positive else generator.standard_normal(shape)).astype(
        type_.dtype
    )


def instance(node, values, owners, call):
    """One call's value of an operand: of a ragged one, the list of its elements'."""
    if node.axis is UNBATCHED:
        return values
    return values[call] if node.axis is CALL else list(values[owners == call])


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in SAMPLES))
def test_onnxruntime_computes_what_the_reference_does(name):
    for sample in (sample for op, sample in SAMPLES if op == name):
        compare(name, sample)


def compare(name, sample):
    own = sample.attrs.get("axis")
    axes = sample.axes or (CALL,) * len(sample.types)
    inputs = [
        input_node(t, axis, f"x{i}") for i, (t, axis) in enumerate(zip(sample.types, axes, strict=True))
    ]
    node = apply(name, *inputs, **sample.attrs)
    ragged_axes = {axis for axis in (*axes, node.axis) if axis.rank == 2}
    owners = np.repeat(np.arange(ROWS), LENGTHS)
    generator = np.random.default_rng(len(name))
    bound = OPS[name].bound(sample.types, sample.attrs)[1] if OPS[name].bound else 3
    leading = {0: (), 1: (ROWS,), 2: (sum(LENGTHS),)}
    values = [drawn(generator, sample, x.type, leading[x.axis.rank], bound) for x in inputs]
    writer = OnnxWriter()
    declared = [onnx.helper.make_tensor_value_info("owners", onnx_type("int64"), ["m"])]
    counts = {
        CALL: writer.constant([ROWS], "int64"),
        **{a: writer.constant([sum(LENGTHS)], "int64") for a in ragged_axes},
    }
    names = {x: f"x{i}" for i, x in enumerate(inputs)}
    (result,) = write(
        OnnxScope(writer, counts, dict.fromkeys(ragged_axes, "owners")), Graph(tuple(inputs), (node,)), names
    )
    declared += [
        onnx.helper.make_tensor_value_info(f"x{i}", onnx_type(x.dtype), x.shape) for i, x in enumerate(values)
    ]
    output = onnx.helper.make_tensor_value_info(
        result, onnx_type(node.dtype), ["rows", *node.shape] if node.axis is not UNBATCHED else node.shape
    )
    constants = [onnx.numpy_helper.from_array(array, key) for key, array in writer.constants.items()]
    graph = onnx.helper.make_graph(writer.nodes, "op", declared, [output], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"owners": owners} | {f"x{i}": x for i, x in enumerate(values)})
    assert got.dtype == node.dtype
    if node.axis is UNBATCHED:
        (expected,) = evaluate(Graph(tuple(inputs), (node,)), values)
    elif ragged_axes:
        expected = []
        for call in range(ROWS):
            given = [instance(x, v, owners, call) for x, v in zip(inputs, values, strict=True)]
            if own in ragged_axes:  # a length is known from an operand along the axis
                expected += [given[0]] * LENGTHS[call]
                continue
            (value,) = evaluate(Graph(tuple(inputs), (node,)), given)
            expected += value if node.axis.rank == 2 else [value]
    else:
        calls = [
            [instance(x, v, owners, call) for x, v in zip(inputs, values, strict=True)]
            for call in range(ROWS)
        ]
        expected = [evaluate(Graph(tuple(inputs), (node,)), given)[0] for given in calls]
    np.testing.assert_allclose(got, np.array(expected), rtol=1e-5, atol=1e-6)
