"""A program's parameters by name: how they are named, read, assigned and loaded."""

import itertools
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

from numpy.typing import ArrayLike

from foldbatch import errors
from foldbatch.params.parameters import Array, Owner, Parameter
from foldbatch.params.updates import RemoteUpdates, Updates
from foldbatch.types import describe_value


class ParameterStore(MutableMapping[str, Array]):
    """A program's parameters by name; assigning checks the array and copies it.

    Attributes:
        parameters: the parameters, by name.
        numbered: the names that depend on the order of building; see `numbered_names`.
        updates: steps of optimizers, compiled or on a device, if the program's engine has any.

    >>> store = ParameterStore({"bias": Parameter([2], 0.0)})
    >>> store["bias"] = [1, 2]
    >>> store["bias"]
    array([1., 2.], dtype=float32)
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], updates: Updates | RemoteUpdates | None = None
    ) -> None:
        self.parameters = dict(parameters)
        self.numbered = numbered_names(self.parameters)
        self.updates = updates

    def admit(self, parameters: Iterable[Parameter]) -> None:
        """Add parameters of a model that has grown; those that are there keep their names."""
        self.parameters |= name_parameters(parameters, self.parameters)
        self.numbered = numbered_names(self.parameters)

    def __getitem__(self, name: str) -> Array:
        return self._find(name).value

    def __setitem__(self, name: str, value: ArrayLike) -> None:
        self._find(name).assign(value, name)

    def __delitem__(self, name: str) -> None:
        raise errors.ParameterError(name, "a parameter to stay", "del", "parameters belong to their layers")

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __repr__(self) -> str:
        lines = (
            f"  {name}: {p.type}{'' if p.trainable else ' frozen'}" for name, p in self.parameters.items()
        )
        return "params\n" + "\n".join(lines) if self.parameters else "params (none)"

    def update(  # type: ignore[override] # takes what can be made an array
        self, saved: Any = (), /, *, strict: bool = False, **values: ArrayLike
    ) -> None:
        """Copy arrays into the parameters of their names: all of them, or none when one is refused.

        Args:
            saved: a mapping from names to arrays, such as a ``dict`` or what ``np.load`` returns of an
                ``npz`` file; or pairs of both.
            strict: whether every parameter must be in it.
            values: more arrays by name.

        Raises:
            UnknownNameError: when a name is unknown, or, with `strict`, one is missing.
            ParameterError: when an array has another shape than its parameter, or holds no numbers or none
                that are finite, or numbers that the parameter's dtype cannot hold.

        Warns `NumberedNamesWarning`, once a call, when layers of these names are numbered.

        >>> store = ParameterStore({name: Parameter([2], 0.0, name) for name in ("bias", "scale")})
        >>> store.update({"bias": [1, 2]})
        >>> store.update({"bias": [3, 4]}, strict=True)
        Traceback (most recent call last):
        ...
        foldbatch.errors.UnknownNameError: params: expected all names of parameters, found 1 missing...
        >>> store["bias"]
        array([1., 2.], dtype=float32)
        """
        self.load(saved, values, strict=strict)

    def load(self, saved: Any, values: Mapping[str, ArrayLike], *, strict: bool) -> None:
        """Do what `update` does; a warning names the line that called the caller."""
        try:
            given = dict(saved, **values)
        except (TypeError, ValueError):
            fix = "for example dict(np.load(path))"
            raise errors.ParameterError("params", "arrays by name", describe_value(saved), fix) from None
        self._refuse_names(given, strict=strict)
        arrays = {name: self.parameters[name].fitting(value, name) for name, value in given.items()}
        for name, array in arrays.items():
            self.parameters[name].assign(array, name)
        numbered = [name for name in given if name in self.numbered]
        if numbered:
            fix = "an edited model may number other layers so; give names, as in Linear(2, name='out')"
            found = f"numbered ones: {errors.shortened(numbered)}"
            warning = errors.NumberedNamesWarning("params", "a name of its own for each layer", found, fix)
            warnings.warn(warning, stacklevel=3)

    def _refuse_names(self, given: Mapping[Any, Any], *, strict: bool) -> None:
        unknown = [name for name in given if name not in self.parameters]
        missing = [name for name in self.parameters if name not in given]
        if not unknown and not (strict and missing):
            return
        found = []
        if strict and missing:
            found.append(f"{len(missing)} missing: {errors.shortened(missing)}")
        if unknown:
            listed = errors.shortened(errors.with_nearest(name, missing) for name in unknown)
            found.append(f"{len(unknown)} unknown: {listed}")
        expected = f"{'all names' if strict else 'names'} of parameters"
        fix = "nothing was changed; print(program.params) lists the names"
        raise errors.UnknownNameError("params", expected, " and ".join(found), fix)

    def _find(self, name: str) -> Parameter:
        try:
            return self.parameters[name]
        except KeyError:
            expected = f"a parameter of {errors.shortened(self.parameters)}"
            found = errors.with_nearest(name, self.parameters)
            raise errors.UnknownNameError("params", expected, found, "print(program.params)") from None


Holder = Owner | Parameter  # a layer, or a stand-alone parameter


def name_parameters(
    parameters: Iterable[Parameter], known: Mapping[str, Parameter] = MappingProxyType({})
) -> dict[str, Parameter]:
    """Return the parameters by full name: ``owner.name``, or ``name`` where there is no owner.

    A name that is taken becomes ``name_1``, ``name_2``, in order of appearance; names that the user gave come
    before others.
    """
    ordered = list(parameters)
    parts = _by_holder(ordered)
    names: dict[Holder, str] = {
        part.owner or part: name.removesuffix(f".{part.name}") if part.owner else name
        for name, part in known.items()
    }
    taken = {*known, *names.values()}
    for holder in sorted(parts, key=lambda holder: not holder.given):
        if holder in names:  # a layer that has been named, and now more of it is read
            continue
        numbered = (f"{holder.name}_{i}" if i else holder.name for i in itertools.count())
        names[holder] = next(name for name in numbered if not taken & _claims(name, parts[holder]))
        taken |= _claims(names[holder], parts[holder])
    return {_full(names[part.owner or part], part): part for part in ordered}


def numbered_names(parameters: Mapping[str, Parameter]) -> frozenset[str]:
    """Return the full names of parameters that an edited model may give to others.

    They are those of layers that only a number tells apart: several of one kind without a name of their
    own, or several that were given one name.

    >>> one, two = Owner("linear"), Owner("linear")
    >>> weights = [Parameter([1], name="weight", owner=owner) for owner in (one, two, Owner("lstm"))]
    >>> sorted(numbered_names(name_parameters(weights)))
    ['linear.weight', 'linear_1.weight']
    """
    claims = {
        holder: [(holder.given, name) for name in _claims(holder.name, parts)]
        for holder, parts in _by_holder(parameters.values()).items()
    }
    counts = Counter(itertools.chain.from_iterable(claims.values()))
    unclear = {holder for holder, claimed in claims.items() if any(counts[claim] > 1 for claim in claimed)}
    return frozenset(name for name, part in parameters.items() if (part.owner or part) in unclear)


def _by_holder(parameters: Iterable[Parameter]) -> dict[Holder, list[Parameter]]:
    parts: dict[Holder, list[Parameter]] = {}
    for parameter in parameters:
        parts.setdefault(parameter.owner or parameter, []).append(parameter)
    return parts


def _claims(name: str, parts: Iterable[Parameter]) -> set[str]:
    """Return the names that a layer or parameter of a name takes: its own, and those of its parameters."""
    return {name, *(_full(name, part) for part in parts)}


def _full(name: str, part: Parameter) -> str:
    return f"{name}.{part.name}" if part.owner else name
