"""Tensors that examples hold: read like other data, with gradients."""

import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError
from tests.backends import TESTED

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")


@pytest.fixture(scope="module")
def summed(form):
    return fb.torch.Module(fb.Map(fb.Vector(3) >> fb.Linear(2, "tanh", name="word")) >> fb.Sum(), TESTED)


@pytest.fixture(scope="module")
def walked(form):
    word = fb.Linear(2, "tanh", name="word")
    each = fb.cell(lambda x: word(x))
    module = fb.torch.Module(
        lambda xs: sum([each(fb.tensor(x, "float32")) for x in xs], fb.tensor([0.0, 0.0])), TESTED
    )
    return module.warm([[[1.0, 2.0, 3.0]]])


def ways(encoded):
    """Examples that read the words of a batch: by rows, by slices, and mixed with a plain list."""
    table = fb.torch.rows(encoded)
    yield [table[0], table[1][:2], []]
    yield [list(encoded[0]), list(encoded[1][:2]), []]
    yield [[table[0][0], *encoded[0][1:]], [table[1][0], encoded[1][1]], []]


@pytest.mark.parametrize("door", ["summed", "walked"])
def test_gradients_are_those_of_the_same_model_in_pytorch(request, door):
    summed = request.getfixturevalue(door)
    numbers = torch.randn(2, 3, 3)
    encoded = numbers.clone().requires_grad_()
    weight, bias = (summed.get_parameter(f"word.{name}").detach() for name in ("weight", "bias"))
    mask = torch.tensor([[1.0, 1, 1], [1, 1, 0]])
    expected = (torch.tanh(encoded @ weight + bias) * mask[..., None]).sum(1)
    (expected**2).sum().backward()
    for number in range(3):
        own = numbers.clone().requires_grad_()
        result = summed(list(ways(own))[number])
        torch.testing.assert_close(result[:2], expected.detach())
        (result**2).sum().backward()
        torch.testing.assert_close(own.grad, encoded.grad)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_tensors_of_other_dtypes_are_converted_both_ways(summed, dtype):
    x = torch.ones(1, 3, dtype=getattr(torch, dtype), requires_grad=True)
    result = summed([[fb.torch.rows(x)[0], x[0]]])
    assert result.dtype == torch.float32
    result.sum().backward()
    assert x.grad.dtype == x.dtype
    assert x.grad.abs().min() > 0


def test_prepared_examples_may_stand_between_others(summed):
    known = summed.prepare([[[1, 2, 3]] * 2])
    x = torch.randn(3, requires_grad=True)
    result = summed([*known, [x], *known])
    assert result[0].equal(result[2])
    result.sum().backward()
    between, x.grad = x.grad, None
    summed([[x]]).sum().backward()
    torch.testing.assert_close(between, x.grad)


def test_a_datum_that_is_read_before_and_behind_a_recursion():
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    children = fb.GetItem(1) >> fb.Map(tree()) >> fb.Sum()
    tree.resolve_to(
        fb.AllOf(fb.GetItem(0) >> fb.Scalar(), children) >> fb.Function(lambda x, s: x * x + s * x)
    )
    module = fb.torch.Module(tree(), TESTED, threads=2)
    a, b, c = (torch.tensor(float(x), requires_grad=True) for x in (2, 3, 5))
    module([(a, [(b, []), (c, [])])]).sum().backward()
    expected = a * a + (b * b + c * c) * a
    slopes = torch.autograd.grad(expected, (a, b, c))
    assert [x.grad.item() for x in (a, b, c)] == pytest.approx([slope.item() for slope in slopes])


def test_tensors_that_no_gradient_can_reach_have_gradients_of_zero():
    stopped = fb.Function(lambda x, y: fb.ops.stop_gradient(x) * y)
    module = fb.torch.Module(fb.Record((fb.Vector(3), fb.Vector(3))) >> stopped, TESTED)
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    module([(x, y)]).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([0, 0, 0], [1, 1, 1])


def test_what_does_not_fit_is_refused_as_other_data_are(summed):
    with pytest.raises(ExampleError, match=r"at example 1 .*expected float32\[3\], found"):
        summed([[torch.ones(3, requires_grad=True)], [torch.ones(2, requires_grad=True)]])
    with pytest.raises(ExampleError, match="at example 0 .*found str"):
        summed([[torch.ones(3, requires_grad=True), "x"]])


def test_numbers_that_numpy_lacks_are_refused_with_their_dtype():
    half = torch.ones(3, dtype=torch.bfloat16)
    for run in (lambda: fb.Vector(3).eval(half), lambda: fb.compile(fb.tensor, "numpy").run([half])):
        with pytest.raises(fb.errors.FoldbatchError, match=r"found bfloat16 tensor of shape \(3,\); convert"):
            run()
    with pytest.raises(fb.errors.BlockTypeError, match="found bfloat16 tensor"):
        fb.FromTensor(half)
