"""What tests of PTX need: NVRTC and a C compiler."""

import pytest

from foldbatch.errors import BackendError
from tests.engines.cuda.nvrtc import nvrtc
from tests.ptx.machine import has_compiler


def lacking() -> str:
    """Return what is not installed; nothing where everything is."""
    if not has_compiler():
        return "there is no C compiler"
    try:
        nvrtc()
    except BackendError:
        return "NVRTC is not installed: pip install nvidia-cuda-nvrtc"
    return ""


needs_ptx = pytest.mark.skipif(bool(lacking()), reason=lacking() or "everything is there")
