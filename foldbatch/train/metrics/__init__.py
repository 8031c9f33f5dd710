"""Metrics: figures of the values that `foldbatch.Metric` blocks collect, over whole data sets."""

from foldbatch.train.metrics.classes import F1, Accuracy, Confusion, TopK
from foldbatch.train.metrics.metric import Metric, labelled
from foldbatch.train.metrics.numbers import MeanAbsoluteError, MeanSquaredError, Perplexity
from foldbatch.train.metrics.tally import Tally

__all__ = [
    "F1",
    "Accuracy",
    "Confusion",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "Perplexity",
    "Tally",
    "TopK",
    "labelled",
]
