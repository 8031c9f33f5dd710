"""Module: a block as a module of PyTorch, which any optimizer of PyTorch trains; layers from there."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn.parallel import DistributedDataParallel

from foldbatch.blocks.block import as_block
from foldbatch.blocks.layers import Embedding, GRUCell, Linear, LSTMCell
from foldbatch.blocks.layers.layer import AnyLayer
from foldbatch.engines.batch import Planned
from foldbatch.engines.engine import check_precision, choose_launch, choose_straight
from foldbatch.errors import (
    BackendError,
    BlockTypeError,
    ExampleError,
    NewParametersWarning,
    ParameterError,
    frames_inside,
    shortened,
)
from foldbatch.functions.modules import is_walk
from foldbatch.model.model import Model
from foldbatch.model.tracer import Decide
from foldbatch.params.parameters import Array, Parameter
from foldbatch.program.compiling import compile, compiled
from foldbatch.program.program import Program
from foldbatch.program.traced import Prepared, listed
from foldbatch.program.variants import ReadyModel, Variant
from foldbatch.scheduler.trace import Trace
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import reachable
from foldbatch.system.graphs import left_out
from foldbatch.torch import device, gradients, library, on_device, ranks
from foldbatch.torch.collated import collated
from foldbatch.torch.device import LivesThere, TorchDevice
from foldbatch.torch.library import PreparedBatch
from foldbatch.torch.second import SecondPass
from foldbatch.trees import Tree
from foldbatch.types import BackendName, SequenceType, TensorType, describe_value

CPU = torch.device("cpu")
HALF = torch.float16, torch.bfloat16
Taken: TypeAlias = tuple[AnyLayer, dict[str, Array]]  # a layer, and the arrays of its parameters


def from_torch(module: Any, *, name: str | None = None) -> Any:
    """Return a layer that computes the same as a layer of PyTorch, with a copy of its weights.

    `torch.nn.Linear`, `LSTMCell`, `GRUCell` and `Embedding` have one. The layer has the dtype of the
    weights, and its data must be of it. It is frozen where all weights of the module are. Gates are put in
    this package's order, and the two biases of an LSTM are added.

    Args:
        module: of PyTorch.
        name: the stem of the parameters' names.

    Raises:
        BlockTypeError: when there is no such layer, or none with the module's settings.

    >>> import torch
    >>> linear = torch.nn.Linear(3, 2)
    >>> ours = fb.compile(fb.Vector(3) >> fb.torch.from_torch(linear)).run([[1, 2, 3]])
    >>> bool(np.allclose(ours[0], linear(torch.tensor([1.0, 2, 3])).detach(), atol=1e-6))
    True
    """
    take = TAKEN.get(type(module))
    if take is None:
        supported = ", ".join(f"torch.nn.{kind.__name__}" for kind in TAKEN)
        fix = "compute it in PyTorch, and let examples hold the tensors that it yields"
        raise BlockTypeError("from_torch", f"one of {supported}", describe_value(module), fix)
    weights = {key: value.detach().cpu().numpy() for key, value in module.named_parameters()}
    trainable = any(value.requires_grad for value in module.parameters())
    layer, arrays = take(module, weights, name)
    layer.parameters.clear()  # an Embedding has made its own
    for key, array in arrays.items():
        type_ = TensorType(array.shape, array.dtype.name)
        layer.parameter(key, type_, np.ascontiguousarray(array), trainable=trainable)
    return layer


def _linear(module: Any, weights: dict[str, Array], name: str | None) -> Taken:
    layer = Linear(module.out_features, bias=module.bias is not None, name=name)
    arrays = {"weight": weights["weight"].T} | {k: v for k, v in weights.items() if k == "bias"}
    return layer, arrays


def _gates(array: Array, order: tuple[int, ...]) -> Array:
    parts = np.split(array, len(order))
    return np.concatenate([parts[place] for place in order])


def _biases(module: Any, weights: dict[str, Array]) -> tuple[Array, Array]:
    if module.bias:
        return weights["bias_ih"], weights["bias_hh"]
    none = np.zeros(len(weights["weight_ih"]), weights["weight_ih"].dtype)
    return none, none


def _lstm(module: Any, weights: dict[str, Array], name: str | None) -> Taken:
    """Return an LSTMCell and the arrays of a PyTorch LSTM cell in its order of gates."""
    order = (2, 0, 3, 1)  # from i, f, u, o to u, i, o, f
    bias, recurrent = _biases(module, weights)
    arrays = {
        "weight": _gates(weights["weight_ih"], order).T,
        "recurrent": _gates(weights["weight_hh"], order).T,
        "bias": _gates(bias + recurrent, order),
    }
    return LSTMCell(module.hidden_size, name=name), arrays


def _gru(module: Any, weights: dict[str, Array], name: str | None) -> Taken:
    """Return a GRUCell and the arrays of a PyTorch GRU cell in its order of gates."""
    order, size = (2, 0, 1), module.hidden_size  # from r, z, n to n, r, z
    input_bias, recurrent = (_gates(bias, order) for bias in _biases(module, weights))
    arrays = {
        "weight": _gates(weights["weight_ih"], order).T,
        "recurrent": _gates(weights["weight_hh"], order).T,
        "bias": np.concatenate([input_bias[:size], input_bias[size:] + recurrent[size:]]),
        "recurrent_bias": recurrent[:size],
    }
    return GRUCell(size, name=name), arrays


def _embedding(module: Any, weights: dict[str, Array], name: str | None) -> Taken:
    """Return an Embedding with the weight of PyTorch's; refuse settings that ours has not."""
    for setting in ("max_norm", "padding_idx"):
        if getattr(module, setting) is not None:
            fix = "padding has no place in a tree; make the module without"
            actual = f"{setting}={getattr(module, setting)}"
            raise BlockTypeError("from_torch", f"an Embedding without {setting}", actual, fix)
    if module.scale_grad_by_freq:
        raise BlockTypeError("from_torch", "an Embedding", "scale_grad_by_freq=True", "make it without")
    weight = weights["weight"]
    return Embedding(*weight.shape, dtype=weight.dtype.name, name=name), {"weight": weight}


TAKEN: dict[Any, Callable[[Any, dict[str, Array], str | None], Taken]] = {
    torch.nn.Linear: _linear,
    torch.nn.LSTMCell: _lstm,
    torch.nn.GRUCell: _gru,
    torch.nn.Embedding: _embedding,
}


# One parameter of PyTorch for each of ours: optimizers know a shared one by its identity.
_SHARED: weakref.WeakKeyDictionary[Parameter, weakref.ref[torch.nn.Parameter]] = weakref.WeakKeyDictionary()


def torch_parameter(parameter: Parameter) -> torch.nn.Parameter:
    """Return the parameter of PyTorch that shares the memory of one of ours; the same one each time.

    >>> ours = Parameter([2], init=1.0)
    >>> theirs = torch_parameter(ours)
    >>> _ = theirs.data.mul_(3)
    >>> ours.value
    array([3., 3.], dtype=float32)
    >>> torch_parameter(ours) is theirs
    True
    """
    reference = _SHARED.get(parameter)
    shared = reference() if reference is not None else None
    if shared is None:
        view = memory_of(parameter)
        shared = torch.nn.Parameter(view, requires_grad=parameter.trainable and view.is_floating_point())
        _SHARED[parameter] = weakref.ref(shared)
    return shared


def memory_of(parameter: Parameter) -> torch.Tensor:
    """Return a parameter's numbers as a tensor over their memory, wherever they live."""
    away = parameter.away
    if isinstance(away, LivesThere):
        device: Any = away.device
        return device.tensor(away.array)
    return torch.from_numpy(parameter.value)


def surrounding(module: torch.nn.Module) -> tuple[torch.nn.Module, str]:
    """Return the outermost module whose ``_apply`` is under way, and the path of a module in it."""
    outer, frame = module, sys._getframe(1)
    while frame is not None:
        inside = frame.f_locals.get("self")
        if frame.f_code.co_name == "_apply" and isinstance(inside, torch.nn.Module):
            outer = inside
        frame = frame.f_back  # type: ignore[assignment]  # the outermost frame has none
    return outer, next((path for path, part in outer.named_modules() if part is module), "")


def _is_there(fn: Callable[[torch.Tensor], torch.Tensor], parameter: torch.nn.Parameter) -> bool:
    """Whether a parameter is where a move would bring it."""
    probe = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
    return fn(probe) is probe


def shared_by_processes(tensor: torch.Tensor) -> bool:
    """Whether `share_memory_` has been called of a tensor on the CPU; on a GPU all are."""
    return tensor.device.type == "cpu" and bool(tensor.is_shared())


class ParameterModule(torch.nn.Module):
    """A module whose parameters share the memory of a program's, and so stay where they are."""

    _path = ""  # in the module of the program

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> ParameterModule:  # noqa: FBT001, FBT002 - PyTorch's signature
        """Refuse to move or convert the parameters, as ``to``, ``cuda`` and ``double`` do.

        All of them are looked at before a module inside is changed. PyTorch goes through a surrounding model
        child by child, so modules that come before this one in it have moved by then: the error names them.
        """
        self._refuse_moves(fn, recurse=recurse)
        if recurse:
            for child in self.children():
                child._apply(fn)
        return self

    def _refuse_moves(self, fn: Callable[[torch.Tensor], torch.Tensor], *, recurse: bool) -> None:
        """Raise the error of the first parameter, here or inside, that a function must not change."""
        for path, module in self.named_modules() if recurse else [("", self)]:
            for name, parameter in module._parameters.items() if isinstance(module, ParameterModule) else ():
                if parameter is not None:
                    self._refuse_move(fn, f"{path}.{name}" if path else name, parameter)

    def _refuse_move(
        self, fn: Callable[[torch.Tensor], torch.Tensor], name: str, parameter: torch.nn.Parameter
    ) -> None:
        """Raise a ParameterError where a function moves a parameter to another dtype, device or memory."""
        probe = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
        moved = fn(probe)
        # a device with a number, as Accelerate's cpu:0, copies to where the tensor is
        stays = moved is probe or (
            moved.dtype == probe.dtype and moved.device.type == probe.device.type == "cpu"
        )
        if (stays and not shared_by_processes(moved)) or self._goes_to(moved, probe):
            return
        dtype, place = str(probe.dtype).removeprefix("torch."), str(probe.device)
        actual = f"{str(moved.dtype).removeprefix('torch.')} on {moved.device}"
        if (moved.dtype, moved.device) == (probe.dtype, probe.device):
            actual = "other memory"
        outer, path = surrounding(self)
        where = ".".join(filter(None, [path if outer is not self else self._path, name]))
        fix = "move the other modules one by one; the dtype is that of the block's layers and data"
        if moved.dtype in HALF and parameter.device.type != "cpu":
            fix = f"compute products in fewer digits with torch.autocast; or {fix}"
        already_moved = [
            key
            for key, moved_parameter in outer.named_parameters()
            if (moved_parameter.dtype, moved_parameter.device) != (probe.dtype, probe.device)
            and _is_there(fn, moved_parameter)
        ]
        if already_moved:
            names = shortened(already_moved)
            fix += f"; now {names} have moved: model.to({place!r}, torch.{dtype}) moves them back"
        expected = f"to stay {dtype} on {place}, in the program's own memory"
        raise ParameterError(where, expected, f"a move to {actual}", fix)

    def _goes_to(self, moved: torch.Tensor, probe: torch.Tensor) -> bool:
        """Whether a parameter may go where a function moves it; only with all others of its program."""
        return False

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, object],
        prefix: str,
        local_metadata: Mapping[str, object],
        *arguments: object,
    ) -> None:
        """Copy arrays into the program's memory, as PyTorch does; refuse ``assign=True``."""
        if local_metadata.get("assign_to_params_buffers"):
            expected, fix = "arrays to be copied into the program's memory", "leave assign out"
            raise ParameterError("load_state_dict", expected, "assign=True", fix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *arguments)


def mount(module: ParameterModule, parameters: Mapping[str, Parameter]) -> dict[str, torch.nn.Parameter]:
    """Put parameters into a module and submodules that it gets, by name; return them by name."""
    mounted = {}
    for full_name, parameter in parameters.items():
        *path, name = full_name.split(".")
        place: torch.nn.Module = module
        for level, part in enumerate(path, 1):
            # written past setattr, which refuses names that methods have
            inside = place._modules
            if inside.get(part) is None:
                inside[part] = child = ParameterModule()
                child._path = ".".join(path[:level])
            place = inside[part]
        mounted[full_name] = place._parameters[name] = torch_parameter(parameter)
    return mounted


@cache
def path_of(full_name: str) -> tuple[tuple[str, ...], str]:
    """Return the names of the modules that a parameter is in, and its name there.

    >>> path_of("tree.join.weight")
    (('tree', 'join'), 'weight')
    """
    *path, name = full_name.split(".")
    return tuple(path), name


def refuse_replaced(
    module: ParameterModule, mounted: Mapping[str, torch.nn.Parameter], memory: Mapping[str, int]
) -> None:
    """Refuse parameters that others have replaced: the program would go on computing with its own."""
    for full_name, parameter in mounted.items():
        path, name = path_of(full_name)
        place: torch.nn.Module = module
        for part in path:
            place = place._modules[part]
        if place._parameters.get(name) is not parameter or parameter.data_ptr() != memory[full_name]:
            expected = "the program's own memory"
            fix = (
                "copy values into it, parameter.copy_(values) under torch.no_grad(), in place of replacing it"
            )
            raise ParameterError(full_name, expected, "another tensor", fix)


def _apply_beside(module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Apply a function to the tensors of a module, but for those parameters that are a program's."""
    if type(module) is not ParameterModule:
        module._apply(fn)
        return
    for child in module.children():
        _apply_beside(child, fn)


def _drawn() -> int:
    """Return a number for a step, as PyTorch's generator of the CPU draws it."""
    return int(torch.randint(2**62, (), device="cpu"))


NO_METRICS: frozenset[str] = frozenset()
LOSSES = frozenset({"losses"})


def _draws(graph: CellGraph) -> bool:
    return any(node.op.name == "random" for node in reachable(graph.results))


def loss_dtype(model: Model) -> torch.dtype | None:
    """Return the dtype of a model's summed loss; None where it has no losses."""
    dtypes = [node.dtype for cell in model.cells for node in cell.graph.losses]
    return getattr(torch, np.result_type(*dtypes).name) if dtypes else None


def form_of(module: Module, model: Model) -> library.Form:
    """Return the form of a module's calls, which graphs of `torch.compile` must know."""
    type_ = model.result
    number, of_loss = library.numbered(module), loss_dtype(model)
    if not isinstance(type_, TensorType):
        return library.Form(number, None, torch.float32, of_loss)
    return library.Form(number, type_.shape, getattr(torch, type_.dtype), of_loss)


def _exporting() -> bool:
    return False


is_exporting = getattr(torch.compiler, "is_exporting", _exporting)  # PyTorch has it since 2.7


def _in_graph() -> bool:
    """Whether `torch.compile` is making a graph, in which a call may stand; a graph for export may not."""
    return torch.compiler.is_dynamo_compiling() and not is_exporting()


class Nodes(NamedTuple):
    """The values of all nodes of a batch, example by example."""

    values: torch.Tensor  # ``[m, *shape]``
    examples: torch.Tensor  # ``[m] int64``: the example of each
    nodes: torch.Tensor  # ``[m] int64``: its place in the example's result, from 0


class Module(ParameterModule):
    """A block as a `torch.nn.Module`: examples in, tensors out, gradients back.

    Its parameters are the program's numbers, in the same memory: what an optimizer of PyTorch changes the
    program computes with, and what is assigned to ``program.params`` PyTorch sees. Their names are those of
    ``program.params``. Frozen ones require no gradient. Two modules whose blocks share a layer share its
    parameters, and are moved together.

    ``cuda()``, ``to(device)`` and ``cpu()`` move the module, and what runs it. On a GPU its memory comes from
    PyTorch's allocator, its work follows PyTorch's current stream, and neither parameters nor results, losses
    or gradients leave the card. An array of ``program.params`` is a copy for reading there. As nobody waits,
    an id out of range is told when a later batch begins; losses and results of its batch are NaN.

    In training, `Dropout` drops, anew in each call, as PyTorch's generator decides; ``eval()`` ends that.
    A model that samples draws anew in each call, too, also after ``eval()``.
    Where no gradient is wanted, as under ``torch.no_grad()``, only what inference needs is computed.

    Examples may hold tensors of PyTorch wherever `Scalar`, `Vector` or `Tensor` reads: gradients flow back
    into those that require them. See `rows`. A `foldbatch.trees.Tree` may not, as trees are traced once.

    A copy, or what is unpickled, is compiled anew and has parameters of its own. A module of a plain function
    has its parameters when it has seen examples, see `warm`, and cannot be copied.

    Args:
        block: a block or a plain function, as of `foldbatch.compile`.
        backend: as of `foldbatch.compile`, for the CPU. With ``cuda`` the module begins on PyTorch's current
            GPU.
        sparse: whether gradients of embeddings are sparse, as `torch.optim.SparseAdam` and SGD take them.
        options: other options of `foldbatch.compile`. Where no ``seed`` is given, PyTorch's generator draws
            one, so `torch.manual_seed` decides the first values, as of layers of PyTorch.

    Attributes:
        program: the compiled block.
        block: the block.

    Raises:
        FoldbatchError: as `foldbatch.compile` does.

    >>> leaves = fb.Map(fb.Scalar("int32") >> fb.Embedding(5, 3, name="words")) >> fb.Sum()
    >>> module = fb.torch.Module(leaves >> fb.Linear(2, name="out"))
    >>> sorted(module.state_dict())
    ['out.bias', 'out.weight', 'words.weight']
    >>> result = module([[1, 2], [], [3]])
    >>> result.shape
    torch.Size([3, 2])
    >>> result.sum().backward()
    >>> module.get_parameter("out.bias").grad
    tensor([3., 3.])
    """

    # the model and the dtype of its loss, when they were last asked for
    _dtype_of_loss: tuple[Model, torch.dtype | None] | None = None

    def __init__(
        self, block: Any, backend: BackendName = "auto", *, sparse: bool = False, **options: Any
    ) -> None:
        """Compile a block or a plain function; the class documents the arguments."""
        super().__init__()
        self.block = block if is_walk(block) else as_block(block)
        self.sparse = sparse
        self._device: TorchDevice | None = None  # where the parameters are; None for the CPU
        seed = options.pop("seed", None)
        self._options = {"backend": backend, **options}
        if seed is None:
            # as layers of PyTorch do: modules made one after the other differ, and manual_seed repeats them
            drawn = int(torch.randint(2**31, (), device="cpu"))
            self._take(compiled(self.block, **self._options, seed=drawn))
        else:
            self._take(compile(self.block, **self._options, seed=seed))
        place = torch.device("cuda") if backend == "cuda" and torch.cuda.is_available() else device.default()
        self._begin_on(place)

    def _take(self, program: Program) -> None:
        self.program: Program = program
        self._at_home = program.options
        self._mount()

    def _begin_on(self, place: torch.device) -> None:
        """Move to the device that PyTorch makes tensors on, or that a copy's original was on."""
        there = device.find(place)
        if there is not None:
            self._move(there, lambda tensor: tensor.to(place))

    def _mount(self) -> None:
        """Take over the program's parameters, and whether it draws random numbers."""
        self._mounted = mount(self, self.program.params.parameters)
        if self._device is not None:
            self._bring(self._device, lambda tensor: tensor.to(self._place))  # those that are new
        self._memory = {name: parameter.data_ptr() for name, parameter in self._mounted.items()}
        cells = self.program.model.cells
        self._phases = any(cell.training.graph is not cell.inference.graph for cell in cells)
        graphs = {True: [c.training.graph for c in cells], False: [c.inference.graph for c in cells]}
        self._draws = {
            training: any(map(_draws, graphs_of_phase)) for training, graphs_of_phase in graphs.items()
        }
        # a graph fixes the parameters, and that their gradients are dense
        fixed = not (self.sparse or self.program.lowered.grows)
        self._form = form_of(self, self.program.model) if fixed else None

    @property
    def _place(self) -> torch.device:
        """The device of PyTorch that the parameters and what the module yields are on."""
        return CPU if self._device is None else self._device.place

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Module:  # noqa: FBT001, FBT002 - PyTorch's signature
        """Move parameters and buffers, as ``to``, ``cuda`` and ``cpu`` do; refuse what else there is.

        All parameters, also those of modules inside, are looked at before anything is changed. The program
        runs where they are from then on. Parameters stay the same objects, so optimizers keep them.
        """
        self._refuse_moves(fn, recurse=recurse)
        if not recurse:  # a part of the parameters alone cannot move
            return self
        probed = next(iter(self._mounted.values()), torch.empty(0, device=self._place))
        there = device.find(fn(torch.empty(0, dtype=probed.dtype, device=probed.device)).device)
        if there is not self._device or self._parted() is not None:
            self._move(there, fn)
        torch.nn.Module._apply(self, fn, recurse=False)  # what a subclass has besides
        for child in self.children():
            _apply_beside(child, fn)
        return self

    def _goes_to(self, moved: torch.Tensor, probe: torch.Tensor) -> bool:
        away = moved.device != probe.device or device.find(moved.device) is not self._device
        return away and moved.dtype == probe.dtype and moved.device.type in ("cpu", "cuda")

    def _move(self, there: TorchDevice | None, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Let the program run on a device, or on the CPU for None, with its parameters there."""
        options = self._at_home
        if there is not None:
            backend = there.card.backend
            launch = options.launch
            if backend != options.backend:
                launch = (
                    choose_launch("auto", backend)
                    if options.memory is None
                    else choose_straight("auto", backend)
                )
            check_precision(options.precision, backend)
            options = replace(options, backend=backend, launch=launch, device=there)
        self.program._run_on(options)
        self._device = there
        self._bring(there, fn)
        self._memory = {name: parameter.data_ptr() for name, parameter in self._mounted.items()}

    def _bring(self, there: TorchDevice | None, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Bring all parameters to a device, or to the CPU for None, with their gradients."""
        for name, parameter in self._mounted.items():
            ours, gradient = self.program.params.parameters[name], parameter.grad
            with torch.no_grad():
                moved = fn(parameter.detach())
                if there is not None:
                    numbers = there.home_of(ours, moved)
                else:
                    ours.settle(None)
                    numbers = torch.from_numpy(ours.value)
                if numbers.data_ptr() == parameter.data_ptr():
                    continue
                parameter.grad = None  # PyTorch refuses gradients of another device
                parameter.data = numbers
                if gradient is not None:
                    parameter.grad = fn(gradient.detach()).requires_grad_(gradient.requires_grad)

    def _parted(self) -> str | None:
        """Return the name of a parameter that is not where the module is; None if all are."""
        for name, parameter in self.program.params.parameters.items():
            away = parameter.away
            if (away.device if away is not None and away.stays else None) is not self._device:
                return name
        return None

    def _refuse_parted(self) -> None:
        """Refuse parameters that a module which shares them has moved."""
        name = self._parted()
        if name is not None:
            there = self._mounted[name].device
            actual = f"one on {there}, where a module that shares its layer has moved it"
            fix = f"move both: module.to({str(there)!r}) moves this one, too"
            raise ParameterError(name, f"a parameter on {self._place}", actual, fix)

    def extra_repr(self) -> str:
        """Return the text of the module's repr besides its parameters' names: the program's."""
        return repr(self.program)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield the parameters with their names, as any module does; `parameters` asks for these, too.

        Raises:
            ParameterError: when the module is of a plain function and has seen no examples: an optimizer or
                a wrapper would be made without its parameters.
        """
        if self.program.lowered.grows and not self.program.model.cells:
            fix = "call module.warm(examples) first"
            raise ParameterError("fb.torch.Module", "parameters", "none, as it has seen no examples", fix)
        named: Iterator[tuple[str, torch.nn.Parameter]] = super().named_parameters(*args, **kwargs)
        return named

    @left_out
    def warm(self, examples: Iterable[object]) -> Module:
        """Learn from examples which cells and parameters a plain function has; return the module itself.

        A module of a plain function has no parameters before: call this before you make an optimizer, load a
        state, or copy parameters. Of blocks all is known.

        Args:
            examples: such as reach all of the model.

        >>> out = fb.Linear(2, name="out")
        >>> module = fb.torch.Module(lambda x: out(fb.tensor(x)))
        >>> sorted(module.warm([[1.0, 2.0]]).state_dict())
        ['out.bias', 'out.weight']
        """
        self.program.warm(examples)
        self._mount()
        return self

    def forward(self, examples: Iterable[Any] | Planned) -> Any:
        """Return the results of a batch, in order.

        Where the block's result is one tensor, that is one tensor ``[examples, *shape]``; else a list with
        each example's result, in which tensors are PyTorch's. Losses and metrics are neither read nor
        computed.

        Raises:
            ExampleError: when an example does not fit the block.
            ParameterError: when a parameter that the block has frozen requires gradients, or one has been
                replaced by another tensor, as `torch.func.functional_call` does.
        """
        form = self._form
        if form and form.shape is not None and _in_graph() and isinstance(examples, PreparedBatch):
            draws = self._draws[self.training]
            return library.results(form, examples, [*self._mounted.values()], draws=draws)
        return self._forward(examples)

    @left_out
    def _forward(self, examples: Iterable[Any] | Planned) -> Any:
        """Return the results of a batch, outside of graphs."""
        stacked, call, sources = self._results(examples)
        type_ = self.program.model.result
        if not isinstance(type_, TensorType):
            return call.results(stacked)
        return stacked[0] if stacked else gradients.no_results(type_, sources, self._place)

    @left_out
    def nodes(self, examples: Iterable[object] | Planned) -> Nodes:
        """Return the values of all nodes as one tensor, with example and place of each.

        The block's result must be a sequence of tensors, as of `Map`, or of ``Collected(...) >> GetItem(1)``.
        Errors are those of `forward`.

        Raises:
            BlockTypeError: when the result is something else.

        >>> module = fb.torch.Module(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x)))
        >>> values, examples, nodes = module.nodes([[1, 2], [], [3]])
        >>> values, examples, nodes
        (tensor([1., 4., 9.]), tensor([0, 0, 2]), tensor([0, 1, 0]))
        """
        examples = examples if isinstance(examples, Planned) else listed(examples)
        type_ = self._learnt(examples).result
        if not isinstance(type_, SequenceType) or not isinstance(type_.element, TensorType):
            fix = "collect nodes: Collected(block) >> GetItem(1), with Collect() where a node is computed"
            raise BlockTypeError("Module.nodes", "a block that yields a sequence of tensors", str(type_), fix)
        stacked, call, sources = self._results(examples)
        none = gradients.no_results(type_.element, sources, self._place)
        counts = np.array(call.batch.lengths(), np.int64)
        nodes = np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)])
        places = np.repeat(np.arange(len(counts)), counts)
        there = self._device
        tensors = map(torch.from_numpy if there is None else there.index, (places, nodes))
        return Nodes(stacked[0] if stacked else none, *tensors)

    def loss(self, examples: Iterable[object] | Planned) -> torch.Tensor:
        """Return the sum of all losses over a batch: a scalar with gradients.

        On a GPU its backward pass is launched with it in training, unless under ``torch.no_grad()``. Errors
        are those of `forward`.

        Raises:
            BlockTypeError: when the block has no `Loss`.

        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> module = fb.torch.Module(fb.Scalar() >> fb.Function(lambda x: w * x) >> fb.Loss())
        >>> loss = module.loss([1, 2])
        >>> loss.backward()
        >>> loss.item(), module.w.grad
        (9.0, tensor(3.))
        """
        form = self._form
        if form and form.of_loss is not None and _in_graph() and isinstance(examples, PreparedBatch):
            draws = self._draws[self.training]
            return library.loss(form, examples, [*self._mounted.values()], draws=draws)
        return self._loss(examples)

    @left_out
    def _loss(self, examples: Iterable[object] | Planned) -> torch.Tensor:
        """Return the summed loss of a batch, outside of graphs."""
        examples = examples if isinstance(examples, Planned) else listed(examples)
        model = self._learnt(examples)
        if self._dtype_of_loss is None or self._dtype_of_loss[0] is not model:
            self._dtype_of_loss = model, loss_dtype(model)
        _, dtype = self._dtype_of_loss
        if dtype is None:
            fix = "end a branch of it with Loss, or compute the loss of the results in PyTorch"
            raise BlockTypeError("Module.loss", "a block with a Loss", "none", fix)
        call, sources = self._call(examples, losses=True)
        return gradients.summed_loss(call, dtype, sources)

    def called(
        self,
        examples: PreparedBatch,
        parameters: Sequence[torch.Tensor],
        step: int | None,
        *,
        losses: bool,
        trained: bool,
    ) -> tuple[gradients.BackwardCall, list[torch.Tensor]]:
        """Run a batch forward for the op of `foldbatch.torch.library`, which alone calls this."""
        for (name, mounted), parameter in zip(self._mounted.items(), parameters, strict=True):
            if parameter.data_ptr() != self._memory[name] and not torch.equal(parameter, mounted):
                fix = "change parameters outside of the function that torch.compile reads"
                expected = "the numbers in the program's own memory"
                raise ParameterError(name, expected, "others, changed in the graph", fix)
        with torch.set_grad_enabled(trained):
            return self._call(examples, losses=losses, step=step)

    @left_out
    def prepare(self, examples: Iterable[object]) -> PreparedBatch:
        """Trace examples ahead, to be given to this module, or to one of an equal block, in their stead.

        What is returned can be pickled, so this is a ``collate_fn`` for a `torch.utils.data.DataLoader` with
        workers. It holds what the losses read, too.

        Raises:
            ExampleError: when an example does not fit the block, or holds tensors that require gradients.
        """
        ready, traces, reads, _ = self._traced(listed(examples), self.program._variants.full)
        self._refuse_tensors(reads.wanted())
        return PreparedBatch([Prepared(trace, ready) for trace in traces])

    @left_out
    def plan(self, examples: Iterable[object]) -> Planned:
        """Make a batch ready ahead, as `Program.plan` does; errors are those of `prepare`.

        `loss` and inference use the plan; `forward` in training plans anew, for gradients of other things.
        """
        return self.program.plan(self.prepare(examples))

    @left_out
    def collate(self, examples: Iterable[object]) -> Planned:
        """Make a batch ready ahead, as `plan` does: a ``collate_fn`` for a DataLoader with workers.

        What a worker returns are integers and data in one tensor, which PyTorch hands over in shared memory.
        The module takes it in the place of the examples, as it takes a plan.

        Raises:
            ExampleError: as `prepare` does; and when examples bring calls to a module of a plain function
                that it has not known when the workers began.

        >>> module = fb.torch.Module(fb.Map(fb.Scalar()) >> fb.Sum())
        >>> module(module.collate([[1, 2], [3]]))
        tensor([3., 3.])
        """
        before = self.program.fingerprint
        planned = self.plan(examples)
        if torch.utils.data.get_worker_info() is not None and self.program.fingerprint != before:
            expected, actual = "examples whose calls are known", "some that bring new calls"
            fix = "call module.warm(examples) before the workers begin"
            raise ExampleError("Module.collate", expected, actual, fix)
        bounded = self.program._runner.is_bounded  # then its parts are cut again where they run
        return planned if bounded else collated(planned)

    def __getstate__(self) -> dict[str, Any]:
        if self.program.lowered.grows:
            fix = "keep module.state_dict(), or module.program.save(path)"
            actual = "one of a plain function, whose layers are not its own"
            raise BlockTypeError("fb.torch.Module", "a module that can be copied or pickled", actual, fix)
        dropped = {"program", "_mounted", "_memory", "_phases", "_draws", "_form", "_device", "_at_home"}
        dropped.add("_dtype_of_loss")
        state = {name: value for name, value in self.__dict__.items() if name not in dropped}
        mounted = {name.split(".")[0] for name in self._mounted}
        for registry in ("_parameters", "_modules"):  # those of a subclass stay, and each has its place
            state[registry] = {name: None if name in mounted else x for name, x in state[registry].items()}
        required = {name: parameter.requires_grad for name, parameter in self._mounted.items()}
        drawing = {"seed": self.program.seed, "steps_drawn": self.program.steps_drawn}
        fresh = self._options.get("fresh", False)
        values = {name: np.array(x) for name, x in self.program.params.items()} if fresh else {}
        place = str(self._place)
        return {**state, "requires_grad": required, "drawing": drawing, "values": values, "place": place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        required = state.pop("requires_grad")
        drawing = state.pop("drawing")
        values = state.pop("values")
        place = torch.device(state.pop("place"))
        super().__setstate__(state)
        self._device = None
        self._take(compiled(self.block, **self._options, seed=drawing["seed"]))
        self.program.steps_drawn = drawing["steps_drawn"]
        for name, value in values.items():  # the block's copy has those of other programs
            self.program.params[name] = value
        for name, parameter in self._mounted.items():
            parameter.requires_grad_(required[name])
        if place.type != "cuda" or torch.cuda.is_available():
            self._begin_on(place)

    def _results(
        self, examples: Iterable[object] | Planned
    ) -> tuple[tuple[torch.Tensor, ...], gradients.BackwardCall, list[torch.Tensor]]:
        """Return results, those of one shape and dtype as one tensor; the call; where gradients flow to."""
        call, sources = self._call(examples, losses=False)
        if self._device is None:
            _ = call.batch.values
        return gradients.stacked_results(call, sources), call, sources

    def _call(
        self, examples: Iterable[object] | Planned, *, losses: bool, step: int | None = None
    ) -> tuple[gradients.BackwardCall, list[torch.Tensor]]:
        """Run a batch; return the call for its backward pass, and the tensors that gradients flow to.

        A step, if one is given, draws random numbers.
        """
        if torch.jit.is_tracing() or get_proxy_mode() is not None:
            fix = "`foldbatch export` writes a model as an ONNX graph"
            raise BackendError("fb.torch.Module", "to be run", "a trace, which would keep these results", fix)
        self._refuse_parted()
        refuse_replaced(self, self._mounted, self._memory)
        there = self._device
        if there is not None:
            there.enter()
        batch = examples if isinstance(examples, Planned) else listed(examples)
        variant = self.program._variants.for_run(batch, LOSSES if losses else NO_METRICS)
        # PyTorch's generator, so that what is computed again, as by activation checkpointing, draws the same
        drew = self._draws[self.training]
        step = step if step is not None else _drawn() if drew else 0
        decide = self.program._deciding.decide(step, training=self.training)
        ready, traces, tensor_reads, numbers = self._traced(batch, variant, decide, there)
        self._take_over_new()
        trained = self._parameters_to_train() if torch.is_grad_enabled() else {}
        reads = tensor_reads.wanted() if torch.is_grad_enabled() else []
        if trained:
            ranks.check(self, self._mounted, traces)
        feed, settled = None, self.training or not self._phases
        if there is not None:
            reads_there = on_device.ReadsThere(there, tensor_reads.reads, numbers)
            if tensor_reads.place is not None and tensor_reads.reads:
                feed = reads_there.feed
        derivatives = ready.derivatives if there is None else ready.in_precision(self._precision())
        # of a batch that was planned, or of one tree seen before, there is a plan for the variant's own cells
        plan = traces if numbers else ready.traces.work(batch, ready)
        if self._draws[self.training]:
            drawn = drew or variant.tracer.decides  # decisions have been drawn for this step
            step = self.program._drawing(step if drawn else _drawn())
        if trained or reads:
            pool = derivatives.pool_of(
                losses=losses, results=not losses, inputs=bool(reads), training=settled
            )
            work = plan if pool.runner is derivatives.runner else traces
            batch_run = pool.hold(work, step, results=not losses, feed=feed)
        else:
            pool, trains = derivatives.own_pool, self.training and self._phases
            work = plan if trains else pool.runner.asked(plan, LOSSES if losses else NO_METRICS)
            batch_run = pool.hold(work, step, training=trains, feed=feed)
        if there is not None:
            details = list(trained), reads_there, numbers
            expected = losses and bool(trained) and self.training
            device_call = on_device.call_on(there, batch_run, *details, sparse=self.sparse, together=expected)
            return device_call, [*trained.values(), *(read.values for read in device_call.reads)]
        gradients.settle(list(self.program.params.parameters.values()))
        twice = SecondPass(derivatives, traces, step, settled)
        call = gradients.BackwardCall(batch_run, list(trained), reads, numbers, self.sparse, twice)
        return call, [*trained.values(), *(read.values for read in reads)]

    def _precision(self) -> str:
        """Return how products are computed: as the program was compiled, or as ``torch.autocast`` wants.

        Products of float16 have as many digits as those of ``tf32``, which overflow no sooner than float32.
        """
        compiled_for = self.program.options.precision
        kind = self._place.type
        if compiled_for != "fp32" or not torch.is_autocast_enabled(kind):
            return compiled_for
        return "bf16" if torch.get_autocast_dtype(kind) == torch.bfloat16 else "tf32"

    def _learnt(self, examples: Sequence[object] | Planned) -> Model:
        """Return the model; where nothing is known of it, after a look at the examples."""
        if self.program.lowered.grows and not self.program.model.cells:
            self.program._read_first(examples, "a module reads the first ones to learn of its model")
        return self.program.model

    def _take_over_new(self) -> None:
        """Mount parameters that the batch has brought, of which an optimizer made before knows nothing."""
        if not self.program.lowered.grows:
            return
        former = self._mounted
        self._mount()
        new = self._mounted.keys() - former.keys()
        if new and (former or self.training) and torch.is_grad_enabled():
            fix = "call module.warm(examples) before you make the optimizer"
            actual = f"the new {', '.join(sorted(new))}"
            warning = NewParametersWarning("fb.torch.Module", "parameters that are known", actual, fix)
            warnings.warn(warning, stacklevel=frames_inside())

    def _parameters_to_train(self) -> dict[Parameter, torch.nn.Parameter]:
        """Return the parameters that require gradients, with PyTorch's for each."""
        trained = {}
        for name, parameter in self.program.params.parameters.items():
            mounted = self._mounted[name]
            if mounted.requires_grad:
                if not parameter.trainable:
                    fix = "build the layer with trainable=True, or leave requires_grad as it is"
                    raise ParameterError(name, "no gradient for a frozen parameter", "requires_grad", fix)
                trained[parameter] = mounted
        return trained

    def _traced(
        self,
        batch: Planned | Sequence[Any],
        variant: Variant,
        decide: Decide | None = None,
        there: TorchDevice | None = None,
    ) -> tuple[ReadyModel, list[Trace], gradients.TensorReads, Sequence[int]]:
        """Return the model that runs traces, the traces, the tensors read, and the examples traced now.

        Tensors that are read stay on a device where that is given, unless somebody needs their numbers: for a
        trace that is kept, or a batch that is cut into parts.
        """
        reads = gradients.TensorReads()
        traced: Sequence[int] = ()
        if isinstance(batch, Planned):
            ready, traces = variant.all(batch)
            return ready, traces, reads, traced
        stays = there is not None and variant.ready.runner.is_whole

        def trace_all(examples: Sequence[object], numbers: Sequence[int]) -> list[Trace]:
            nonlocal reads, traced
            reads, traced = gradients.TensorReads(), numbers
            if stays and there is not None and not any(isinstance(example, Tree) for example in examples):
                reads = gradients.TensorReads(there.place, there.index)
            return variant.tracer.trace_all(examples, numbers, reads.look, decide)

        try:
            ready, traces = variant.all(batch, trace_all)
        except ExampleError:
            if reads.refused is None:
                raise
        if reads.refused is not None:
            raise reads.refused
        if reads.wanted() and any(isinstance(batch[n], Tree) for n in traced):
            self._refuse_tensors(reads.wanted())
        return ready, traces, reads, traced

    def _refuse_tensors(self, reads: Sequence[gradients.TensorRead]) -> None:
        """Refuse tensors that require gradients where traces are kept with the values that were read."""
        if reads:
            where = self.program.model.feeds[reads[0].cell][reads[0].feed].where
            fix = "give module(examples) examples that are neither prepared nor a Tree, such as (tree, rows)"
            raise ExampleError(where, "data that stay", "a tensor that requires gradients", fix)


def _note_wrapper(wrapper: torch.nn.Module, _: str, wrapped: torch.nn.Module | None) -> None:
    """Report to the modules of a model that a DistributedDataParallel is being made around it."""
    if isinstance(wrapper, DistributedDataParallel) and wrapped is not None:
        modules = [module for module in wrapped.modules() if isinstance(module, Module)]
        for number, module in enumerate(modules):
            ranks.wrap(module, number, module._mounted, wrapper, sparse=module.sparse)


torch.nn.modules.module.register_module_module_registration_hook(_note_wrapper)
