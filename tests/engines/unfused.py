"""The LLVM engine without fused loops: nothing is compiled for a model, so that many models can be tried.

Everything else is the same: instructions, the compiled walk, and the functions that it calls.
"""

from foldbatch.engines import llvm
from foldbatch.engines.arrays import ArrayEngine
from foldbatch.engines.engine import DEFAULTS, Backend, EngineSettings
from foldbatch.model.model import Model
from foldbatch.static.routines import Target


def load(model: Model, settings: EngineSettings = DEFAULTS) -> ArrayEngine:
    engine = llvm.load(model, settings)
    engine.target = Target()
    return engine


BACKEND = Backend(load)
