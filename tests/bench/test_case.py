"""A case is plain data."""

import pytest

from foldbatch.bench.case import Case


def test_a_case_cannot_change() -> None:
    """So the tuple of cases is what it was when it was written."""
    case = Case("toy", "a toy", print, print, list, dict, print)
    with pytest.raises(AttributeError):
        case.name = "other"  # type: ignore[misc]
