"""Tables as text."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", left: int = 1) -> str:
    """Return a table as text: so many columns to the left, the others to the right.

    >>> print(table(("name", "count"), [("a", "10"), ("longer", "7")], title="Sizes"))
    Sizes
    name    count
    a          10
    longer      7
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [title] if title else []
    for line in lines:
        cells = [
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)
