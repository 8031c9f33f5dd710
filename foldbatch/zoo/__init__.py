"""Models of the literature by name. Each is a function that returns a block made of declarative parts."""

from foldbatch.zoo.child_sum import child_sum
from foldbatch.zoo.models import MODELS, bilstm, json, rntn, tree_lstm
from foldbatch.zoo.tasks import Task
from foldbatch.zoo.words import Words

__all__ = ["MODELS", "Task", "Words", "bilstm", "child_sum", "json", "rntn", "tree_lstm"]


def __dir__() -> list[str]:
    return __all__
