"""Parameters: one tensor, the store of all of them by name, and the formulas that change them."""

from foldbatch.params.parameters import Parameter, SparseRows

__all__ = ["Parameter", "SparseRows"]
