"""The texts of kernels: CUDA C++ that is C, too, written for the statements of a routine."""
