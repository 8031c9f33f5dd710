"""Whole numbers by which who notes a round, and an engine that runs it at once, understand each other."""

from foldbatch.loops.records import Record

# what stands in the pattern of a call's row, beside slots that read: its own number, the length of a list,
# and what the model does not read
CALL_NUMBER, LENGTH, LEFT_OUT = -1, -2, -3
# what comes of a round that is run at once: it was not; or the number of the class of all that is asked for,
# if that is one
FAILED, MIXED = -1, -2
# values that few examples make at most: from there on plans of whole batches are better, which take products
# of words alone out of recursions
SMALL_BATCH_VALUES = 2_048


class ValueClass(Record):
    """A class of values that are kept: they are of one type, and lie side by side."""

    used: int  # how many there are
    room: int  # how many there may be
    bytes: int  # of one value
    values: int  # the address of the first
