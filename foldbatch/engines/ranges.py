"""The error of an id that a kernel computed and that is out of range."""


class OutOfRangeError(IndexError):
    """An id that a kernel computed is negative, or too large.

    Attributes:
        rank: of the call that it belongs to, among the calls of its cell.
        id: the integer.
        size: what it must stay below.
        launch: the row of the launch table that was running; -1 until the walk of the table fills it in.
        cell: the number of the cell; -1 until the engine fills it in.
    """

    def __init__(self, rank: int, id: int, size: int, launch: int = -1, cell: int = -1) -> None:
        super().__init__(rank, id, size, launch, cell)
        self.rank, self.id, self.size, self.launch, self.cell = rank, id, size, launch, cell
