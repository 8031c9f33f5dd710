"""Arguments that were renamed: the former name works for one release, and warns."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function whose arguments have other names now, by their former ones.

    >>> @renamed(batch="batch_size")
    ... def shuffled(batch_size=32):
    ...     return batch_size
    >>> with warnings.catch_warnings(action="ignore"):
    ...     shuffled(batch=8)
    8
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            for former in names.keys() & options:
                message = f"{function.__qualname__}: the argument {former} is called {names[former]} now"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                options[names[former]] = options.pop(former)
            try:
                return function(*arguments, **options)
            except TypeError as error:
                if error.__traceback__ and error.__traceback__.tb_next is None:  # of the call itself
                    error.__traceback__ = None  # it is the caller's
                raise

        return call

    return decorate
