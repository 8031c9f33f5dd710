"""The law of ops: forward mode, reverse mode and differences agree on every sample, and so do their derivatives."""

import pytest

from foldbatch.static.op import OPS
from tests.static.derivatives import check_sample


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.samples])
def test_derivatives_agree_with_each_other_and_with_differences(name: str) -> None:
    for sample in OPS[name].samples:
        check_sample(OPS[name], sample)
