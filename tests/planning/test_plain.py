"""Where nothing can be compiled, the loops of planning run as plain Python: programs are right, and say so once."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from foldbatch.errors import SlowPathWarning
from foldbatch.loops import compiling
from foldbatch.planning.compiled import PLAIN, loops
from tests.programs.checks import DOORS, check


@pytest.fixture
def no_compiler() -> Iterator[None]:
    """An environment in which llvmlite cannot be imported."""

    def refuse(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    compiling.can_compile.cache_clear()
    with mock.patch.object(compiling, "import_module", refuse):
        yield
    compiling.can_compile.cache_clear()


@pytest.mark.parametrize("door", DOORS)
def test_laws_hold_without_a_compiler(no_compiler: None, door: str) -> None:
    with pytest.warns(SlowPathWarning, match="compiled code: expected llvmlite to be installed") as caught:
        for number in (1, 2):
            check(number, "numpy", door, many=False)
    assert loops() is PLAIN
    assert sum(issubclass(warning.category, SlowPathWarning) for warning in caught) == 1
