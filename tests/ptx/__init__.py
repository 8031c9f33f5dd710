"""PTX on the CPU: the kernels that NVRTC makes, executed with blocks, warps, barriers and every access checked.

The backend ``cuda-on-ptx`` of tests is the CUDA engine on it.
"""

NAME = "cuda-on-ptx"
