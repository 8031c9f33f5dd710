"""Integers that notes of rounds and an engine that runs these at once share; see `small_batches`."""

from foldbatch.loops.records import Record

# what stands in the pattern of a call's row, beside slots that read: its own number, the length of a list,
# and what the model does not read
CALL_NUMBER, LENGTH, LEFT_OUT = -1, -2, -3


class ValueClass(Record):
    """A class of values that are kept: they are of one type, and lie side by side."""

    used: int  # how many there are
    room: int  # how many there may be
    bytes: int  # of one value
    values: int  # the address of the first
