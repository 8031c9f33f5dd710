"""Contests: a model of structure beside usual baselines on anyone's data, with the same split and clock."""

from foldbatch.contest.comparing import compare as compare
from foldbatch.contest.comparison import Comparison as Comparison
from foldbatch.contest.examples import Examples as Examples
from foldbatch.contest.reading import read as read
