"""Updates: the formulas of optimizers, and what engines make of them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from foldbatch.params.parameters import Parameter


class Rule(NamedTuple):
    """The formula of an optimizer, for one number of a parameter.

    >>> Rule(("g = g + decay * p", "p = p - rate * g"), (), ("decay", "rate")).locals
    ('g',)
    """

    # assignments to ``p`` (the parameter), to moments, or to other names. On the right stand sums,
    # differences, products, quotients and ``sqrt(x)`` of ``p``, ``g`` (the gradient), moments, numbers and
    # names that lines above assign. No name is ``i`` or ``n``, or ends in an underscore.
    lines: tuple[str, ...]
    moments: tuple[str, ...]  # the names of what is kept for each number from step to step
    numbers: tuple[str, ...]  # the names of what is alike for the whole parameter

    @property
    def locals(self) -> tuple[str, ...]:
        """The names that lines assign besides ``p`` and moments."""
        assigned = dict.fromkeys(line.partition(" = ")[0] for line in self.lines)
        return tuple(name for name in assigned if name != "p" and name not in self.moments)


class Change(NamedTuple):
    """A parameter to be changed by a rule."""

    name: str  # of the parameter
    parameter: Any  # the parameter, or its array
    # an array for each moment, of the parameter's shape and dtype; copies in another place may take their
    # places
    moments: list[Any]
    gradient: Any  # an array or `SparseRows`, which fits
    factor: float  # what the gradient is multiplied by first
    rule: Rule  # the formula
    numbers: tuple[float, ...]
    by_rows: bool  # whether a sparse gradient leaves the other rows as they are


class Updates:
    """Optimizers' steps on NumPy's arrays, compiled by an engine."""

    helped: bool  # whether another core may help

    def apply(
        self, changes: Sequence[Change], look: Callable[[Sequence[Change]], None] | None
    ) -> list[Change]:
        """Change parameters and moments, arrays that share no memory; return the changes that it cannot do.

        Args:
            changes: see there.
            look: raises an error if a gradient has a NaN, an infinity, or rows not ascending or not in its
                table. It is asked of what cannot be done here, and of all changes where there is a fault;
                nothing has changed then. None where the gradients are good.
        """
        raise NotImplementedError

    def good(self, gradients: Iterable[Any]) -> bool:
        """Return whether no gradient has a fault; also False where compiled code cannot tell."""
        raise NotImplementedError


class RemoteUpdates:
    """Optimizers' steps on parameters in the memory of a device."""

    def full(self, parameter: Parameter, number: float) -> Any:
        """Return an array of the device, like a parameter, of one number."""
        raise NotImplementedError

    def apply(self, changes: Sequence[Change], undo: Callable[[], None]) -> None:
        """Change parameters and moments, all or none, and do not wait.

        None are changed if a gradient of the device, times its factor, has a NaN or an infinity, or is of a
        batch with an id out of range. Then later updates change nothing either until the error is raised,
        which is when somebody reads what the device computed; see `look`.

        Args:
            changes: their gradients are on the device, or were found good.
            undo: takes back what the caller counts for this update; called before the error is raised.
        """
        raise NotImplementedError

    def look(self) -> None:
        """Wait, and raise the error of the first bad update, if there is one since somebody looked.

        Raises:
            ParameterError: when an update was refused.
        """
        raise NotImplementedError
