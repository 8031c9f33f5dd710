"""Parameters of PyTorch over the memory of a program's: where they live in a module, and what moves them.

A name has a part for each module: ``tree.weight`` is the parameter ``weight`` of the submodule ``tree``. So
`state_dict` has the names of `program.params`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from foldbatch.errors import ParameterError
from foldbatch.params import Parameter

# One parameter of PyTorch for each of ours: optimizers know a shared one by its identity.
_MADE: weakref.WeakKeyDictionary[Parameter, weakref.ref[torch.nn.Parameter]] = weakref.WeakKeyDictionary()


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
    reference = _MADE.get(parameter)
    made = reference() if reference is not None else None
    if made is None:
        view = torch.from_numpy(parameter.value)
        made = torch.nn.Parameter(view, requires_grad=parameter.trainable and view.is_floating_point())
        _MADE[parameter] = weakref.ref(made)
    return made


class Part(torch.nn.Module):
    """A module whose parameters share the memory of a program's, and so stay where they are."""

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Part:  # noqa: FBT001, FBT002 - PyTorch's signature
        """Refuse to move or convert the parameters, as ``to``, ``cuda`` and ``double`` do.

        Raises:
            ParameterError: when they would be moved or converted.
        """
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            probe = torch.empty(0, dtype=parameter.dtype)
            moved = fn(probe)
            if moved is not probe or moved.is_shared():
                found = f"{str(moved.dtype).removeprefix('torch.')} on {moved.device}"
                if moved.dtype == probe.dtype and moved.device == probe.device:
                    found = "other memory"
                dtype = str(probe.dtype).removeprefix("torch.")
                fix = "move the other modules one by one; the dtype is that of the block's layers and data"
                expected = f"to stay {dtype} on cpu, in the program's own memory"
                raise ParameterError(name, expected, f"a move to {found}", fix)
        if recurse:
            for child in self.children():
                child._apply(fn)
        return self

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Mapping[str, Any], *rest: Any
    ) -> None:
        """Copy saved arrays into the parameters.

        Raises:
            ParameterError: when they would take the parameters' places.
        """
        if local_metadata.get("assign_to_params_buffers"):
            expected, fix = "arrays to be copied into the program's memory", "leave assign out"
            raise ParameterError("load_state_dict", expected, "assign=True", fix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def mount(module: Part, parameters: Mapping[str, Parameter]) -> dict[str, torch.nn.Parameter]:
    """Put parameters into a module and submodules that it gets, by name; return them by name."""
    mounted = {}
    for full_name, parameter in parameters.items():
        *path, name = full_name.split(".")
        place: torch.nn.Module = module
        for part in path:
            # written past setattr, which refuses names that methods have
            inside = place._modules
            if inside.get(part) is None:
                inside[part] = Part()
            place = inside[part]
        mounted[full_name] = place._parameters[name] = torch_parameter(parameter)
    return mounted


def refuse_replaced(
    module: Part, mounted: Mapping[str, torch.nn.Parameter], memory: Mapping[str, int]
) -> None:
    """Refuse parameters that others have replaced: the program would go on computing with its own.

    Args:
        module: what they were mounted in.
        mounted: the parameters that were mounted, by name.
        memory: the address of each one's memory then.

    Raises:
        ParameterError: when one is another tensor, or has other memory.
    """
    for full_name, parameter in mounted.items():
        *path, name = full_name.split(".")
        place: torch.nn.Module = module
        for part in path:
            place = place._modules[part]
        if place._parameters.get(name) is not parameter or parameter.data_ptr() != memory[full_name]:
            expected = "the program's own memory"
            fix = (
                "copy values into it, parameter.copy_(values) under torch.no_grad(), in place of replacing it"
            )
            raise ParameterError(full_name, expected, "another tensor", fix)
