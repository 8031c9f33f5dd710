"""Parts of a batch that have run."""

from __future__ import annotations

import numpy as np

import foldbatch as fb
from foldbatch.engines.parts import Begun
from foldbatch.engines.planned import SubBatch


def test_seeds_get_the_numbers_that_values_have_in_the_batch():
    program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy")
    batch = fb.program.schedule(program, [[1, 2], [3]])
    begun = Begun(SubBatch(0, ()), batch, None)
    offset = int(batch.merged.offsets[1])
    assert offset > 0
    g = np.ones(())
    assert begun.batch_seeds([[(2, g)], [(0, g)]]) == [[(2, g)], [(offset, g)]]
