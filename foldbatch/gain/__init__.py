"""What batching gains on the user's own block and examples: `foldbatch.bench`."""

from foldbatch.gain.measure import bench
from foldbatch.gain.outcome import BatchFigures, CellFigures, Outcome, Seconds

__all__ = ["BatchFigures", "CellFigures", "Outcome", "Seconds", "bench"]
