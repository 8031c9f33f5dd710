"""Functions: models as plain Python functions, run once an example (*walks*).

What a walk calls on tensors, cells and layers and functions of `foldbatch.ops`, is noted as integers; the
same cells, schedules and engines as those of blocks run it.
"""

from foldbatch.functions.cells import cell
from foldbatch.functions.eager import Seen
from foldbatch.functions.loose import loss, metric, tensor
from foldbatch.functions.modules import Module
from foldbatch.functions.suspended import together
from foldbatch.functions.walks import Walk

__all__ = ["Module", "Seen", "Walk", "cell", "loss", "metric", "tensor", "together"]
