"""What batching gains on the user's own block and examples: `foldbatch.bench` and ``foldbatch bench``."""

from foldbatch.gain.figures import BatchFigures, CellFigures, Seconds
from foldbatch.gain.measure import bench
from foldbatch.gain.outcome import Outcome

__all__ = ["BatchFigures", "CellFigures", "Outcome", "Seconds", "bench"]
