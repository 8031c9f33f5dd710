"""A module on a card, which the CPU stands for: nothing is copied, nobody waits, and moves keep everything."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BackendError, DeviceMemoryError, ExampleError, ParameterError
from foldbatch.params.parameters import dense

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from foldbatch.engines.engine import LAUNCH_VARIABLE  # noqa: E402
from tests.engines.cuda.emulated import needs_compiler  # noqa: E402
from tests.engines.cuda.emulator import Emulator  # noqa: E402
from tests.engines.cuda.late import Late  # noqa: E402
from tests.engines.cuda.on_cpu import always_captured  # noqa: E402
from tests.torch.card import new_device, on_card  # noqa: E402
from tests.torch.models import TREES, loss_of, tree_of  # noqa: E402

pytestmark = [pytest.mark.one_form, needs_compiler]
COPIES = "copy_in", "copy_out"


@pytest.fixture
def card():
    with on_card() as there:
        yield there


def words_of(size):
    """A model that reads vectors of an encoder, and its result."""
    return fb.Map(fb.Vector(size) >> fb.Linear(size, "tanh", name="word")) >> fb.Sum()


def gradients_of(module):
    return {name: p.grad.to_dense().clone() for name, p in module.named_parameters() if p.grad is not None}


def asked(card, step):
    """What the driver is asked by a step: names with their arguments."""
    calls = card.card.driver.calls
    begin = len(calls)
    step()
    return calls[begin:]


def copied(calls):
    """The bytes of each copy between host and card."""
    return [
        (name, next(x.nbytes for x in arguments if isinstance(x, np.ndarray)))
        for name, arguments in calls
        if name in COPIES
    ]


def test_parameters_are_the_tensors_that_the_engine_computes_with(card):
    module = fb.torch.Module(tree_of(), "numpy")
    assert module.program.engine.device is card
    for name, parameter in module.named_parameters():
        ours = module.program.params.parameters[name]
        assert card.values[ours].pointer == parameter.data_ptr()
        assert ours.away.array.pointer == parameter.data_ptr()
        assert parameter.data_ptr() % 256 == 0
    before = {name: parameter.data_ptr() for name, parameter in module.named_parameters()}
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    (module(TREES) ** 2).sum().backward()
    optimizer.step()
    assert {name: parameter.data_ptr() for name, parameter in module.named_parameters()} == before


@pytest.mark.parametrize("losses", [False, True])
def test_what_a_step_copies_does_not_grow_with_tensors(losses):
    """Neither parameters nor results, losses or gradients go to the host: only whole numbers come from it."""
    found = []
    for size in (4, 32):
        with on_card() as card:
            module = fb.torch.Module(loss_of(tree_of(size)) if losses else tree_of(size), "numpy")

            def step(module=module):
                (module.loss(TREES) if losses else (module(TREES) ** 2).sum()).backward()

            step()
            calls = asked(card, step)
            assert not {"synchronize"} & {name for name, _ in calls if name != "synchronize"}
            found.append(copied(calls))
    assert found[0] == found[1]
    assert [name for name, _ in found[0]].count("copy_out") == 1  # whether an id was out of range


def test_what_an_encoder_yields_stays_on_the_card_both_ways():
    found = []
    for size in (4, 32):
        with on_card() as card:
            module = fb.torch.Module(words_of(size), "numpy")
            encoded = torch.randn(3, 5, size, requires_grad=True)
            rows = fb.torch.rows(encoded)

            def step(module=module, rows=rows):
                (module([rows[0], rows[1][:2], []]) ** 2).sum().backward()

            step()
            encoded.grad = None
            found.append(copied(asked(card, step)))
            weight, bias = (module.get_parameter(f"word.{name}").detach() for name in ("weight", "bias"))
            x = encoded.detach().requires_grad_()
            expected = torch.stack(
                [torch.tanh(x[0] @ weight + bias).sum(0), torch.tanh(x[1, :2] @ weight + bias).sum(0)]
            )
            (expected**2).sum().backward()
            torch.testing.assert_close(encoded.grad, x.grad)
    assert found[0] == found[1]


def test_gradients_are_memory_of_the_engine(card):
    module = fb.torch.Module(tree_of(), "numpy", sparse=True)
    made, tensor = [], type(card).tensor
    with mock.patch.object(
        type(card), "tensor", lambda self, array: made.append(array) or tensor(self, array)
    ):
        (module(TREES[1:3]) ** 2).sum().backward()
    pointers = {array.pointer for array in made}
    words = module.get_parameter("words.weight").grad
    assert words.is_sparse
    assert {words._values().data_ptr(), words._indices().data_ptr()} <= pointers
    assert module.get_parameter("join.weight").grad.data_ptr() in pointers


def test_nobody_waits_in_a_step():
    """A driver that does nothing before it must has done nothing of a step when that is over."""
    late = Late(Emulator(), (0,))
    with on_card(new_device(late)) as card:
        module = fb.torch.Module(loss_of(tree_of()), "numpy")
        optimizer = torch.optim.Adam(module.parameters(), 0.0, fused=True)
        for _ in range(2):
            module.loss(TREES)
        card.synchronize()

        def step():
            optimizer.zero_grad()
            module.loss(TREES).backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0, foreach=True)
            optimizer.step()

        with mock.patch.object(Late, "synchronize", side_effect=AssertionError("the host waits")):
            step()
        assert any(late._queues)
        card.synchronize()
    gc.collect()


def test_a_change_of_pytorchs_stream_is_followed_in_order():
    late = Late(Emulator(), (0,))
    with on_card(new_device(late)) as card, torch.no_grad():
        module = fb.torch.Module(tree_of(), "numpy")
        first = card.stream
        module(TREES)
        right = np.stack(module.program.run(TREES))
        module.program.params["join.bias"] = np.arange(4)
        assert not np.allclose(np.stack(module.program.run(TREES)), right)
        module.program.params["join.bias"] = np.zeros(4)  # waits on the first stream
        card.card.number = 1
        used = len(card.card.used)
        results = module(TREES)
        assert card.stream is not first
        assert len(card.card.used) > used  # PyTorch's allocator is told of what lies in memory of the first
        event = card.driver.event()
        card.driver.record(event, card.stream)
        card.driver.synchronize(event)  # of the second stream alone
        torch.testing.assert_close(results, torch.from_numpy(right))
        card.card.number = 2
        np.testing.assert_array_equal(np.stack(module.program.run(TREES)), right)
        assert card.stream is not first
        assert card.card.current()[1] is card.stream
        card.synchronize()


def test_moves_keep_numbers_gradients_and_what_an_optimizer_knows():
    plain, moving = (fb.torch.Module(loss_of(tree_of()), "numpy", seed=3) for _ in range(2))
    optimizers = [torch.optim.Adam(module.parameters(), 0.1) for module in (plain, moving)]
    parameters = dict(moving.named_parameters())
    there = new_device()
    for turn in range(6):
        for module, optimizer in zip((plain, moving), optimizers, strict=True):
            if turn % 2 == 0:
                optimizer.zero_grad()
            module.loss(TREES).backward()
            if module is moving:
                with on_card(there) if turn in (0, 3) else mock.patch.object(gc, "garbage", []):
                    module.to("cpu") if turn != 1 else None
            optimizer.step()
    for name, parameter in moving.named_parameters():
        assert parameters[name] is parameter
        torch.testing.assert_close(parameter, plain.get_parameter(name))
        np.testing.assert_array_equal(moving.program.params[name], parameter.detach())
    assert moving._device is None
    assert all(ours.value.flags.writeable for ours in moving.program.params.parameters.values())


def test_a_surrounding_model_takes_modules_along(card):
    with mock.patch("foldbatch.torch.device.find", lambda place: None):
        inner = fb.torch.Module(tree_of(), "numpy")
        inner.own = torch.nn.Linear(2, 2)
        inner.register_buffer("mean", torch.zeros(2))
        outer = torch.nn.Sequential(inner, torch.nn.Linear(4, 2))
    assert inner._device is None
    seen = []
    outer._apply(lambda tensor: seen.append(tensor) or tensor)
    assert inner._device is card
    assert any(tensor is inner.mean for tensor in seen)
    assert any(tensor is inner.own.weight for tensor in seen)
    outer(TREES).sum().backward()
    assert all(p.grad is not None for name, p in outer.named_parameters() if ".own." not in name)


def test_modules_that_share_a_layer_move_together():
    layer = fb.Linear(2, "tanh", name="shared")
    one = fb.torch.Module(fb.Vector(3) >> layer, "numpy")
    two = fb.torch.Module(fb.Vector(3) >> layer >> fb.Linear(2, name="head"), "numpy")
    right = two([[1, 2, 3]]).detach()
    there = new_device()
    with on_card(there):
        one.cpu()
        with pytest.raises(
            ParameterError, match=r"^shared\.\w+: expected a parameter on cpu, found .*; move both"
        ):
            two([[1, 2, 3]])
        two.cpu()
        assert one.get_parameter("shared.bias") is two.get_parameter("shared.bias")
        torch.testing.assert_close(two([[1, 2, 3]]).detach(), right)
        (one([[1, 2, 3]]).sum() + two([[1, 2, 3]]).sum()).backward()
    two.cpu()
    with on_card(there), pytest.raises(ParameterError, match="where a module that shares its layer"):
        one([[1, 2, 3]])


def test_programs_of_a_shared_layer_read_the_newest_numbers_and_change_none():
    block = loss_of(tree_of())
    with on_card() as card:
        module = fb.torch.Module(block, "numpy")
        program = fb.compile(block, "numpy")
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.25)
        loss, gradients = program.value_and_grad(TREES)
        assert loss == pytest.approx(module.loss(TREES).item(), rel=1e-5)
        with pytest.raises(
            ParameterError, match="numbers that this program may change, found ones on the CPU"
        ):
            fb.train.SGD(0.1).update(program.params, gradients)
        other = fb.compile(block, "cuda-on-cpu")  # another device
        found, gradients = other.value_and_grad(TREES)
        assert found == pytest.approx(loss, rel=1e-5)
        with pytest.raises(ParameterError, match="numbers that this program may change"):
            fb.train.SGD(0.1).update(other.params, gradients)
        before = module.get_parameter("join.bias").detach().clone()
        _, gradients = module.program.value_and_grad(TREES)
        fb.train.SGD(0.1).update(module.program.params, gradients)  # its own may
        slope = torch.from_numpy(np.array(dense(gradients["join.bias"])))
        torch.testing.assert_close(module.get_parameter("join.bias").detach(), before - 0.1 * slope)
        assert module.program.engine.device is card


def test_numbers_are_read_and_assigned_by_name(card):
    module = fb.torch.Module(tree_of(), "numpy")
    module.program.params["join.bias"] = np.arange(4)
    assert module.get_parameter("join.bias").tolist() == [0, 1, 2, 3]
    with torch.no_grad():
        module.get_parameter("join.bias").mul_(2)
    read = module.program.params["join.bias"]
    assert read.tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 1  # it would be lost
    after, again = (copied(asked(card, lambda: module(TREES))) for _ in range(2))
    assert after == again


def test_copies_and_files_are_on_the_card_and_apart(card):
    module = fb.torch.Module(loss_of(tree_of()), "numpy")
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for other in (
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(file, weights_only=False),
    ):
        assert other._device is card
        assert other.loss(TREES).item() == module.loss(TREES).item()
        with torch.no_grad():
            other.get_parameter("join.bias").add_(1)
        assert not module.get_parameter("join.bias").any()
        other.load_state_dict(module.state_dict())
        assert not other.get_parameter("join.bias").any()


def test_an_id_out_of_range_is_told_when_the_next_batch_begins_and_is_nan_until_then(card):
    ids = fb.Scalar("int32") >> fb.Function(lambda i: i * 2) >> fb.Embedding(5, 3, name="words")
    module = fb.torch.Module(ids, "numpy")
    with torch.no_grad():
        assert module([1, 4]).isnan().all()
        with pytest.raises(ExampleError, match="at example 1: expected ids from 0 to 4"):
            module([1])
        assert not module([1]).isnan().any()
    summed = fb.torch.Module(loss_of(ids), "numpy")
    assert summed.loss([1, 4]).isnan()
    with pytest.raises(ExampleError, match="at example 1: expected ids from 0 to 4"):
        summed.loss([1])


@pytest.mark.parametrize(
    ("dtype", "precision"), [(torch.bfloat16, "bf16"), (torch.float16, "tf32"), (None, "fp32")]
)
def test_autocast_chooses_how_products_are_computed(card, dtype, precision):
    module = fb.torch.Module(fb.Vector(64) >> fb.Linear(64, name="wide"), "numpy")
    x = torch.randn(400, 64)

    def step():
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            result = module(fb.torch.rows(x))
        assert result.dtype == torch.float32
        result.sum().backward()

    products = [arguments[0] for name, arguments in asked(card, step) if name == "multiply"]
    assert len(products) > 1  # forward and backward
    assert {product.precision for product in products} == {precision}


def test_a_scaler_and_accumulation_train_as_on_the_cpu(card):
    with mock.patch("foldbatch.torch.device.find", lambda place: None):
        plain = fb.torch.Module(loss_of(tree_of()), "numpy", seed=3)
    module = fb.torch.Module(loss_of(tree_of()), "numpy", seed=3)
    for each in (plain, module):
        optimizer = torch.optim.AdamW(each.parameters(), 0.05, fused=True)
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(3):
            optimizer.zero_grad()
            for half in (TREES[:2], TREES[2:]):
                scaler.scale(each.loss(half) / 2).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(each.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter, plain.get_parameter(name), rtol=1e-4, atol=1e-5)


def test_results_of_several_forms_are_put_in_order(card):
    """Of one shape, but from several cells; of other shapes; and none."""
    linear = fb.Vector(2) >> fb.Linear(3, name="out")
    choice = fb.OneOf(lambda x: len(x), {2: linear, 3: fb.Vector(3)})
    pair = fb.AllOf(choice, fb.Map(fb.Scalar()) >> fb.Sum(), fb.InputTransform(len) >> fb.Scalar("int32"))
    examples = [[1, 2], [3, 4, 5], [6, 7], [1, 1, 1]]
    sums = fb.Map(fb.Scalar()) >> fb.Sum()
    both = fb.torch.Module(fb.Record((sums, fb.Scalar() >> fb.Function(lambda x: 3 * x))), "numpy")
    pairs = [([1, 2], 3), ([4], 5), ([], 6)]
    assert len(both.program.model.results) == 2
    assert [[x.item() for x in result] for result in both(pairs)] == [[3, 9], [4, 15], [0, 18]]
    module = fb.torch.Module(pair, "numpy")
    results, expected = module(examples), module.program.run(examples)
    for result, right in zip(results, expected, strict=True):
        for one, other in zip(result, right, strict=True):
            np.testing.assert_allclose(one.detach(), other, rtol=1e-6)
    sum((result[0] * (n + 1)).sum() for n, result in enumerate(results)).backward()
    bias = module.get_parameter("out.bias").grad
    assert bias.tolist() == [4, 4, 4]
    assert module([]) == []


def test_one_by_one_and_bounded_batches_take_the_slow_way(card):
    for options in ({"batched": False}, {"memory": 200_000}):
        module = fb.torch.Module(words_of(3), "numpy", options=options, seed=1)
        encoded = torch.randn(2, 3, 3, requires_grad=True)
        rows = fb.torch.rows(encoded)
        result = module([rows[0], rows[1]])
        weight, bias = (module.get_parameter(f"word.{name}") for name in ("weight", "bias"))
        (result**2).sum().backward()
        grads = [encoded.grad, weight.grad, bias.grad]
        inputs = [t.detach().requires_grad_() for t in (encoded, weight, bias)]
        expected = torch.tanh(inputs[0] @ inputs[1] + inputs[2]).sum(1)
        torch.testing.assert_close(result.detach(), expected.detach())
        (expected**2).sum().backward()
        for grad, tensor in zip(grads, inputs, strict=True):
            torch.testing.assert_close(grad, tensor.grad)


def test_a_walk_that_decides_by_what_it_reads_gets_its_numbers(card):
    score = fb.Linear(1, name="score")
    cell = fb.cell(lambda x: score(x)[0])

    def walk(xs):
        total = fb.tensor(0.0)
        for x in xs:
            value = cell(fb.tensor(x, "float32"))
            if float(value) > 0:
                total = total + value
        return total

    module = fb.torch.Module(walk, "numpy").warm([[[1.0, 2.0]], [[-1.0, -2.0]]])
    x = torch.randn(4, 2, requires_grad=True)
    result = module([list(x)])
    weight, bias = (module.get_parameter(f"score.{name}").detach() for name in ("weight", "bias"))
    expected = torch.relu(x @ weight + bias).sum()
    torch.testing.assert_close(result[0], expected)
    result.sum().backward()
    found, x.grad = x.grad, None
    expected.backward()
    torch.testing.assert_close(found, x.grad)


def test_prepared_and_planned_examples_stand_for_examples_after_a_move():
    module = fb.torch.Module(loss_of(tree_of()), "numpy")
    right = module.loss(TREES).item()
    prepared, planned = module.prepare(TREES), module.plan(TREES)
    module.loss(planned)
    with on_card():
        module.cpu()
        for batch in (TREES, prepared, planned):
            assert module.loss(batch).item() == pytest.approx(right, rel=1e-6)
    module.cpu()
    assert module.loss(planned).item() == pytest.approx(right, rel=1e-6)


def test_a_full_card_is_told_in_the_engines_words(card):
    module = fb.torch.Module(tree_of(), "numpy")
    module(TREES)

    def full(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")

    with (
        mock.patch.object(torch, "empty", full),
        pytest.raises(DeviceMemoryError, match=r"more memory on the CPU.*found CUDA out of memory"),
    ):
        module(TREES)
    (module(TREES) ** 2).sum().backward()


@pytest.mark.parametrize("losses", [False, True])
def test_a_captured_step_is_one_graph_from_a_loss_and_two_from_results(monkeypatch, losses):
    monkeypatch.setenv(LAUNCH_VARIABLE, "captured")
    with always_captured(), on_card() as card:
        module = fb.torch.Module(loss_of(tree_of()) if losses else tree_of(), "numpy", seed=2)
        with mock.patch("foldbatch.torch.device.find", lambda place: None):
            plain = fb.torch.Module(module.block, "numpy", seed=2, fresh=True)
            plain.load_state_dict(module.state_dict())

        def step(module=module):
            module.zero_grad()
            (module.loss(TREES) if losses else (module(TREES) ** 2).sum()).backward()

        for _ in range(4):
            step()
        calls = [name for name, _ in asked(card, step)]
        assert calls.count("replay") == (1 if losses else 2)
        assert "multiply" not in calls
        step(plain)
        for name, gradient in gradients_of(plain).items():
            torch.testing.assert_close(gradients_of(module)[name], gradient, rtol=1e-4, atol=1e-6)


def test_results_of_a_planned_batch_compute_no_losses(card):
    """They launch as much as those of a batch that was not planned, whose model has no losses."""
    key = fb.GetItem("leaf") >> fb.Scalar("int32")
    other = key >> fb.Embedding(5, 3, name="others") >> fb.Function(fb.ops.tanh)
    states = {True: key >> fb.Embedding(5, 3, name="words"), False: other}
    loss = fb.Function(lambda h: fb.ops.sum(h * h)) >> fb.Loss()
    block = fb.OneOf(lambda x: x["leaf"] > 1, states) >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)
    module, examples = fb.torch.Module(block, "numpy").eval(), [{"leaf": 1}, {"leaf": 2}]
    plan = module.plan(examples)
    with torch.no_grad():
        plain = asked(card, lambda: module(examples))
        planned = asked(card, lambda: module(plan))
        torch.testing.assert_close(module(plan), module(examples))
    launches = [[name for name, _ in calls].count("launch") for calls in (plain, planned)]
    assert launches[0] == launches[1]


@pytest.mark.parametrize("trains", [False, True])
def test_a_loss_may_be_changed_in_place_used_twice_or_left(card, trains):
    """Whether or not its backward pass was launched with it, as it is in training."""
    with mock.patch("foldbatch.torch.device.find", lambda place: None):
        plain = fb.torch.Module(loss_of(tree_of()), "numpy", seed=2)
    module, found = fb.torch.Module(loss_of(tree_of()), "numpy", seed=2), []
    for each in (plain, module):
        each.train(trains)
        each.loss(TREES[:2])
        loss, other = each.loss(TREES), each.loss(TREES[1:])
        loss *= 3
        loss.backward(retain_graph=True)
        (loss + other).backward()
        found.append(gradients_of(each))
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-6)


def test_gradients_on_a_card_are_taken_once(card):
    """Those of a penalty are refused in a sentence; the gradients themselves are there."""
    module = fb.torch.Module(tree_of(), "numpy")
    slopes = torch.autograd.grad(module(TREES).sum(), [*module.parameters()], create_graph=True)
    penalty = sum(slope.square().sum() for slope in slopes)
    assert penalty.detach() > 0
    with pytest.raises(BackendError, match="found gradients of gradients; compute the penalty on the CPU"):
        penalty.backward()
