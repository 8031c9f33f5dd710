"""Views: cells explained in text and drawings, batches drawn as pictures."""

from foldbatch.views.attributions import draw_attribution
from foldbatch.views.explanation import Explanation, explain
from foldbatch.views.graph import draw_model
from foldbatch.views.picture import draw_schedule
from foldbatch.views.plots import Plot
from foldbatch.views.trees import draw_errors

__all__ = ["Explanation", "Plot", "draw_attribution", "draw_errors", "draw_model", "draw_schedule", "explain"]


def __dir__() -> list[str]:
    return __all__
