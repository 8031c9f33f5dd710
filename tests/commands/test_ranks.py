"""Of several ranks the first one speaks."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import pytest

from foldbatch.commands.ranks import first_speaks
from foldbatch.errors import BlockUseError


def say(rank, error=None):
    with first_speaks(SimpleNamespace(rank=rank)):
        print("output")
        print("complaint", file=sys.stderr)
        if rank:
            warnings.warn("a warning", stacklevel=1)
        if error is not None:
            raise error


def test_rank_0_alone_prints(capsys):
    say(1)
    say(0)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("output\n", "complaint\n")


@pytest.mark.parametrize(
    ("error", "status"), [(BlockUseError("a", "b", "c"), 2), (OSError(), 2), (KeyboardInterrupt(), 130)]
)
def test_other_ranks_end_without_a_word(error, status):
    with pytest.raises(SystemExit) as ended:
        say(1, error)
    assert ended.value.code == status
    with pytest.raises(type(error)):
        say(0, error)
