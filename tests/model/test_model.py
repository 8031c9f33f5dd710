"""Models: what engines read of them, and the same model with other graphs or other gradients."""

import numpy as np

import foldbatch as fb
from foldbatch import ops
from foldbatch.model.model import digest


def test_digests_tell_models_apart_and_equal_ones_not():
    def digest_of(scale=2.0, size=3, init="zeros", name="w", loss="loss"):
        w = fb.Parameter([size], init, name)
        block = fb.Vector(size) >> fb.Function(lambda x: x * w * scale)
        return digest(fb.compile(block >> fb.Function(ops.sum) >> fb.Loss(loss), "numpy").model)

    others = [{"scale": 3.0}, {"size": 2}, {"init": "ones"}, {"init": 0.5}, {"name": "v"}, {"loss": "l"}]
    found = [digest_of(), *(digest_of(**other) for other in others)]
    assert digest_of() == found[0]
    assert len({*found}) == len(found)
    large, other = np.zeros(100), np.zeros(100)
    other[50] = 1  # not among what is printed
    assert len({digest(fb.compile(fb.FromTensor(x), "numpy").model) for x in (large, other)}) == 2
