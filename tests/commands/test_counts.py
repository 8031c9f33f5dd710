"""Numbers on the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from foldbatch.commands.counts import count


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", ""])
def test_a_count_is_a_whole_number_of_one_or_more(text):
    with pytest.raises(ArgumentTypeError, match="expected a whole number of 1 or more"):
        count(text)
