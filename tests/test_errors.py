"""All errors have one form, survive pickling, and are the built-in ones too."""

import inspect
import pickle

import pytest

from foldbatch import errors

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.FoldbatchError)]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_where_expected_found_and_fix(kind: type[errors.FoldbatchError]) -> None:
    """Also KeyErrors, which Python would print as a repr."""
    error = kind("here", "this", "that", "do so")
    assert str(error) == "here: expected this, found that; do so"
    assert str(kind("here", "this", "that")) == "here: expected this, found that"
    again = pickle.loads(pickle.dumps(error))
    assert (again.where, again.expected, again.found, again.fix) == ("here", "this", "that", "do so")


@pytest.mark.parametrize("kind", [c for c in CLASSES if c is not errors.FoldbatchError])
def test_every_error_derives_from_a_built_in_one(kind: type[errors.FoldbatchError]) -> None:
    """So that code written without foldbatch in mind can catch it."""
    built_in = (TypeError, ValueError, LookupError, RuntimeError)
    assert issubclass(kind, built_in)
