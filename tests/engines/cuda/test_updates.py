"""Optimizers' steps on a device are those of the host, and a bad gradient there changes nothing."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.cuda.device import Device, DeviceArray, DeviceRows
from foldbatch.engines.cuda.updates import DeviceUpdates
from foldbatch.engines.pending import Pending
from foldbatch.engines.sums import total
from foldbatch.errors import ExampleError, NotFiniteWarning, ParameterError
from foldbatch.params.parameters import SparseRows
from foldbatch.train import SGD, AdaGrad, Adam, clip_by_global_norm
from tests.engines.cuda.checked import late
from tests.engines.cuda.emulated import device, needs_compiler
from tests.engines.cuda.emulator import Emulator
from tests.train.optimizing import (
    MAKERS,
    assert_same,
    copied,
    every_optimizer,
    gradients,
    on_device,
    on_host,
    parameters,
)

pytestmark = needs_compiler


def there(grads, *, known=False, where=None):
    """Copy gradients to a device; with `known` rows there, too."""
    put = (where or device()).put
    copies = {}
    for name, g in grads.items():
        if not isinstance(g, SparseRows):
            copies[name] = put(g)
        elif known:
            copies[name] = DeviceRows(g.rows, put(g.values), g.shape, put(g.rows))
        else:
            copies[name] = SparseRows(g.rows, put(g.values), g.shape)
    return copies


def as_float64(arrays):
    return {
        name: SparseRows(a.rows, a.values.astype("float64"), a.shape)
        if isinstance(a, SparseRows)
        else a.astype("float64")
        for name, a in arrays.items()
    }


@every_optimizer
@pytest.mark.parametrize(("known", "wide"), [(False, True), (True, False)])
def test_steps_are_those_of_the_host_to_the_last_bit(make, known, wide):
    change = as_float64 if wide else dict
    host, store = change(parameters()), on_device(change(parameters()))
    one, other = make(), make()
    for seed in range(3):
        one.update(host, change(gradients(seed)), scale=0.3)
        other.update(store, there(change(gradients(seed)), known=known), scale=0.3)
        assert all(p.away is not None for p in store.parameters.values())
    assert_same(host, store)
    assert_same(one.state(), other.state())


@every_optimizer
def test_a_bad_gradient_stops_this_update_and_later_ones_until_somebody_reads(make):
    store, opt = on_device(parameters()), make()
    opt.update(store, there(gradients(0)))
    before, state = copied(store), opt.state()
    bad = gradients(1)
    bad["layer.bias"][2] = np.nan
    opt.update(store, there(bad))
    opt.update(store, there(gradients(2)))
    with pytest.raises(ParameterError, match=r"layer.bias gradient: expected finite .*; nothing was changed"):
        _ = store["scale"]
    assert_same(store, before)
    assert_same(opt.state(), state)
    twin, host = make(), parameters()
    for seed in (0, 3):
        twin.update(host, gradients(seed))
    opt.update(store, there(gradients(3)))
    assert_same(store, host)


@pytest.mark.parametrize("read", ["state", "gradient"])
def test_a_bad_first_gradient_leaves_no_moments(read):
    store, opt = on_device(parameters()), Adam()
    grads = there({"scale": np.array(1e30, "float32")})
    opt.update(store, grads, scale=1e30)  # finite only until it is scaled
    with pytest.raises(ParameterError, match="scale gradient"):
        _ = opt.state() if read == "state" else np.asarray(grads["scale"])
    assert opt.state() == {"lr": 0.001}
    assert_same(store, parameters())


def test_two_optimizers_of_a_device_stop_together():
    first, second = on_device(parameters()), on_device(parameters(1))
    one, two = SGD(0.1), SGD(0.1, momentum=0.9)
    one.update(first, there({"scale": np.array(np.inf, "float32")}))
    two.update(second, there(gradients(0)))
    with pytest.raises(ParameterError):
        two.state()
    assert one.state() == two.state() == {"lr": 0.1}
    assert_same(second, parameters(1))


class Guard:
    def __init__(self, word):
        self.word = device().put(np.array([word]))

    def check(self):
        pass


def test_gradients_of_a_bad_batch_change_nothing():
    store, opt = on_device(parameters()), SGD(0.1)
    grads = there(gradients(0))
    for gradient in (grads["scale"], grads["table.weight"].values):
        gradient.guards = (Guard(0),)
    grads["layer.bias"].guards = (Guard(7),)
    opt.update(store, grads)
    with pytest.raises(ParameterError, match="ids within range"):
        copied(store)
    assert_same(store, parameters())


def test_what_can_be_told_without_the_numbers_is_refused_at_once():
    store, opt = on_device(parameters()), Adam()
    for bad in (
        {"scale": device().put(np.zeros(1, "float32"))},
        {"table.weight": SparseRows(np.array([8]), device().put(np.zeros((1, 3), "float32")), (7, 3))},
        {"layer.bias": np.full(4, np.nan)},
    ):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            opt.update(store, there(gradients(0)) | bad)
    assert opt.state() == {"lr": 0.001}
    assert_same(store, parameters())


def test_gradients_of_another_dtype_or_of_the_host_are_copied():
    host, store = parameters(), on_device(parameters())
    grads = gradients(0)
    SGD(0.1).update(host, grads)
    mixed = grads | there({"layer.bias": grads["layer.bias"].astype("float64"), "scale": grads["scale"]})
    SGD(0.1).update(store, mixed)
    assert_same(store, host)


@every_optimizer
def test_gradients_of_a_device_change_parameters_of_the_host(make):
    expected, plain, store = parameters(), parameters(), on_host(parameters())
    for params, grads in (
        (expected, gradients(0)),
        (plain, there(gradients(0))),
        (store, there(gradients(0))),
    ):
        make().update(params, grads)
    assert_same(plain, expected)
    assert_same(store, expected)


@pytest.mark.parametrize("name", ["momentum", "adam", "adagrad decayed", "lazy adam"])
def test_an_optimizer_goes_on_wherever_its_parameters_are(name):
    """From the device to the host, by its state to another optimizer, and back."""
    straight, moved = parameters(), on_device(parameters())
    opt, first, second = MAKERS[name](), MAKERS[name](), MAKERS[name]()
    for seed in range(4):
        opt.update(straight, gradients(seed))
    first.update(moved, there(gradients(0)))
    host = on_host(copied(moved))
    first._parameters.clear()  # copies stand for the parameters, which another program would be refused for
    first.update(host, gradients(1))
    second.load_state(first.state())
    moved.update(dict(host))
    second.update(moved, there(gradients(2)))
    second.update(moved, gradients(3))
    assert_same(moved, straight)
    assert_same(second.state(), opt.state())
    assert all(isinstance(m, DeviceArray) for moments in second._moments.values() for m in moments)


class Waits(Emulator):
    """Counts waits and kernels."""

    waits = launches = 0

    def synchronize(self, event):
        self.waits += 1

    def launch(self, *arguments):
        self.launches += 1
        super().launch(*arguments)


def test_a_step_waits_for_nothing():
    driver = Waits()
    one = Device(driver)
    store, opt = on_host(parameters(), DeviceUpdates(one)), Adam()
    values, rows = one.put(np.ones((2, 3), "float32")), np.array([1, 4])
    grads = {name: one.put(np.ones(p.shape, "float32")) for name, p in parameters().items()}
    grads["table.weight"] = DeviceRows(rows, values, (7, 3), one.put(rows))
    opt.update(store, grads)
    waits, driver.launches = driver.waits, 0
    for _ in range(30):
        clipped, norm = clip_by_global_norm(grads, 1.0)
        opt.update(store, clipped, scale=0.5)
    assert driver.waits == waits
    assert driver.launches == 30 * (
        4 + 1 + 4 + 4 + 1 + 2 + 1
    )  # squares, factor, scale; flags, fault, zeros and spread, all steps
    assert norm == pytest.approx(np.sqrt(2 * 3 + 12 + 4 + 1))
    assert driver.waits > waits


def _trained(one):
    """Train with two optimizers on a device, with sums of gradients and clipping; return what came of it."""
    ends = []
    for make in (Adam, AdaGrad):
        store, opt = on_host(parameters(), DeviceUpdates(one)), make(0.1, weight_decay=0.1)
        for seed in range(2):
            grads, more = (there(gradients(k), where=one) for k in (seed, 5))
            for name in ("table.weight", "layer.bias"):
                grads[name] = total([grads[name], more[name]])
            clipped, norm = clip_by_global_norm(grads, 1.0)
            opt.update(store, clipped, scale=0.5)
        ends.append(copied(store) | opt.state() | {"norm": float(norm)})
    return ends


def test_steps_are_the_same_in_every_order_of_the_device_and_touch_only_what_they_say():
    expected = _trained(device())
    assert all(key.startswith("lr") or (np.asarray(value) != 0).any() for key, value in expected[0].items())
    for order in ("late", "mixed"):
        for found, right in zip(_trained(Device(late(order))), expected, strict=True):
            assert_same(found, right)


def _trees(backend, *, trainable=True):
    """A program that folds nested pairs of numbers; those above 4 are in no table."""
    start = np.arange(15).reshape(5, 3) / 10
    table = fb.Parameter([5, 3], name="table", init=start, trainable=trainable)
    join = fb.Linear(3, name="join")
    word = fb.Scalar("int32") >> fb.Function(lambda i: ops.gather(table, 2 * i - i))
    tree = fb.ForwardDeclaration(output_type=[3], name="tree")
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> join >> fb.Function(ops.tanh)
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {True: pair, False: word}))
    block = tree() >> fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    return block, fb.compile(block, backend, seed=1)


BATCHES = [[(0, (1, 2)), 3], [((4, 1), (2, 2))], [(1, 1), 0]]


@pytest.mark.parametrize("name", ["momentum", "adam", "lazy adam decayed"])
def test_training_on_a_device_is_training(name):
    ends = []
    for backend in ("numpy", "cuda-on-cpu"):
        _, program = _trees(backend)
        opt, total = MAKERS[name](), 0.0
        for batch in BATCHES * 2:
            loss, grads = program.value_and_grad(batch)
            assert isinstance(loss, Pending) == (backend == "cuda-on-cpu")
            clipped, _ = clip_by_global_norm(grads, 0.7)
            opt.update(program.params, clipped, scale=1 / len(batch))
            total += loss / len(batch)
        ends.append((float(total), copied(program.params), opt.state()))
    (here, params, state), (there, moved, other) = ends
    assert there == pytest.approx(here, rel=1e-5)
    for left, right in ((params, moved), (state, other)):
        for key in left:
            np.testing.assert_allclose(right[key], left[key], rtol=1e-5, atol=1e-6, err_msg=key)


def test_the_next_loss_raises_the_error_of_a_bad_update():
    _, program = _trees("cuda-on-cpu")
    program.params["join.weight"][0, 0] = np.nan
    before, opt = copied(program.params), Adam()
    loss, grads = program.value_and_grad(BATCHES[0])
    opt.update(program.params, grads)
    with pytest.warns(NotFiniteWarning, match="loss: expected a finite number"):
        assert np.isnan(loss)
    with pytest.raises(ParameterError, match="gradient: expected finite numbers"):
        float(program.value_and_grad(BATCHES[0])[0])
    assert opt.state() == {"lr": 0.001}
    assert_same(program.params, before)


def test_a_batch_with_an_id_out_of_range_changes_nothing_and_its_loss_names_the_example():
    _, program = _trees("cuda-on-cpu", trainable=False)
    before, opt = copied(program.params), SGD(0.1)
    loss, grads = program.value_and_grad([1, (2, (9, 1))])
    opt.update(program.params, grads)
    message = "at example 1: expected ids from 0 to 4, found 9"
    with pytest.raises(ExampleError, match=message):
        grads["join.bias"].tolist()
    with pytest.raises(ExampleError, match=message):
        float(loss)
    assert_same(program.params, before)
    assert opt.state() == {"lr": 0.1}
    opt.update(program.params, program.value_and_grad([(1, 2)])[1])
    assert opt.state() == {"lr": 0.1, "steps/join.weight": 1, "steps/join.bias": 1}
    assert (program.params["join.bias"] != before["join.bias"]).any()


def test_ids_that_a_cell_computes_for_a_table_that_trains_are_looked_at_at_once():
    _, program = _trees("cuda-on-cpu")
    with pytest.raises(ExampleError, match="at example 1: expected ids from 0 to 4, found 9"):
        program.value_and_grad([1, (2, (9, 1))])
