import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.sums import total
from foldbatch.errors import NotFiniteWarning, ParameterError
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.one_by_one import OneByOne

pytestmark = needs_compiler

EXAMPLES = [[1, 2, 3], [4], [1, 5], [2, 2, 2, 2]]


def _block(size=9):
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(size, 3))
    return words >> fb.RNN(fb.GRUCell(40)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()


def _programs(block=_block):
    plain, due = (fb.compile(block(), "cuda-on-cpu", share=None, seed=3) for _ in range(2))
    launcher = OneByOne(due.engine)
    due.engine.launchers[True] = launcher
    return plain, due, launcher


def _dense(gradient):
    return gradient.dense() if isinstance(gradient, fb.SparseRows) else np.asarray(gradient)


def test_a_step_that_is_due_is_launched_when_somebody_looks():
    plain, due, launcher = _programs()
    loss, gradients = due.value_and_grad(EXAMPLES)
    assert launcher.launched == 0
    expected, wanted = plain.value_and_grad(EXAMPLES)
    due.engine.device.flush()
    assert launcher.launched == 1
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(_dense(gradients[name]), _dense(gradient), rtol=1e-5, atol=1e-6)


def test_an_update_goes_with_the_step():
    plain, due, launcher = _programs()
    optimizers = [fb.Adam(lr=0.01), fb.Adam(lr=0.01)]
    losses = []
    for program, optimizer in zip((plain, due), optimizers, strict=True):
        sums = []
        for _ in range(3):
            loss, gradients = program.value_and_grad(EXAMPLES)
            optimizer.update(program.params, gradients, scale=0.25)
            sums.append(loss)
        losses.append([float(loss) for loss in sums])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert launcher.launched == 3
    assert launcher.updates == 2  # the first one makes moments first, which launches the step
    for name, value in plain.params.items():
        np.testing.assert_allclose(due.params[name], value, rtol=1e-5, atol=1e-6)


def test_gradients_of_several_steps_add_up():
    plain, due, _ = _programs()
    sums = []
    for program in (plain, due):
        first, second = (program.value_and_grad(part)[1] for part in (EXAMPLES[:2], EXAMPLES[2:]))
        sums.append({name: _dense(total([gradient, second[name]])) for name, gradient in first.items()})
    for name, gradient in sums[0].items():
        np.testing.assert_allclose(sums[1][name], gradient, rtol=1e-5, atol=1e-6)
    native = due.value_and_grad(EXAMPLES)[1]
    values = next(g.values for g in native.values() if isinstance(g, fb.SparseRows)).native
    assert values.any()


def test_results_between_both_passes_are_computed_kernel_by_kernel():
    plain, due, launcher = _programs()
    made, wanted = due.step(EXAMPLES), plain.step(EXAMPLES)
    assert float(made.loss) == float(wanted.loss)
    assert launcher.launched == 0
    for name, gradient in wanted.gradients.items():
        np.testing.assert_array_equal(_dense(made.gradients[name]), _dense(gradient))


def test_gradients_that_are_not_finite_change_nothing():
    _, due, _ = _programs()
    name = next(name for name, value in due.params.items() if value.ndim == 2)
    before = {name: np.array(value) for name, value in due.params.items()}
    optimizer = fb.Adam(lr=0.01)
    loss, gradients = due.value_and_grad(EXAMPLES)
    optimizer.update(due.params, gradients)
    float(loss)
    after = {name: np.array(value) for name, value in due.params.items()}
    assert not np.array_equal(before[name], after[name])
    due.params[name][...] = np.inf
    loss, gradients = due.value_and_grad(EXAMPLES)
    optimizer.update(due.params, gradients)
    with pytest.raises(ParameterError, match="finite"), pytest.warns(NotFiniteWarning):
        _ = float(loss), due.params[name]
