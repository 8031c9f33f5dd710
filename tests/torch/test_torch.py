"""The room is loaded when somebody asks for it."""

import subprocess
import sys

import pytest

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


@pytest.mark.one_form
def test_where_pytorch_is_missing_the_error_says_how_to_get_it():
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True)
    assert "pip install -e '.[torch]'" in done.stdout
