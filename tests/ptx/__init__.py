"""PTX on the CPU: the kernels that NVRTC makes, executed with blocks, warps, barriers and every access checked.

The backend ``cuda-on-ptx`` of tests is the CUDA engine on it.
"""

from foldbatch.engines.engine import ENGINES

NAME = "cuda-on-ptx"


def register() -> None:
    """Let programs be compiled for the backend ``cuda-on-ptx``, in this process."""
    ENGINES.setdefault(NAME, ("tests.ptx.driver", ""))
