"""The room is loaded when somebody asks for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import foldbatch as fb

MISSING = """\
import sys
sys.modules["torch"] = None  # as where it is not installed
import foldbatch as fb
from foldbatch import *
try:
    fb.torch
except fb.errors.BackendError as error:
    print(error)
"""


def test_where_pytorch_is_missing_the_error_says_how_to_get_it():
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True)
    assert "pip install 'foldbatch[torch]'" in done.stdout


def test_names_that_do_not_exist_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'tensorflow'"):
        _ = fb.tensorflow


def test_it_is_found_by_name():
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'foldbatch[torch]'")
    assert fb.from_torch is fb.torch.from_torch
    assert {"torch", "from_torch"} <= set(dir(fb))
