"""Planning by compiled loops, and by the same loops as plain Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from foldbatch.planning import compiled
from tests.backends import needs_llvm

WAYS = ["plain", pytest.param("compiled", marks=needs_llvm)]


@contextmanager
def planned_by(way: str) -> Iterator[None]:
    with mock.patch.object(compiled, "can_compile", lambda: way == "compiled"):
        yield
