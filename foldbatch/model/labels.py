"""Labels of cells, in the user's words: reports, pictures, explanations and errors call cells by them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

LONGEST = 24  # letters of an argument in a label
STRUCTURE = 40  # letters of an argument's structure there


def label_of(name: str, arguments: Sequence[str]) -> str:
    """Return the label of a cell from its function's name and texts of arguments, so that both are known.

    >>> label_of("gate", ["op=xor"]), label_of("gate", [])
    ('gate(op=xor)', 'gate')
    """
    return f"{name}({', '.join(arguments)})" if arguments else name


def argument_text(value: object) -> str:
    """Return the text of an argument for a label: a word as it is, what is long cut off.

    >>> argument_text("xor"), argument_text(True), argument_text(max), argument_text((1, "a b"))
    ('xor', 'True', 'max', "(1, 'a b')")
    >>> argument_text("x" * 30)
    'xxxxxxxxxxxxxxxxxxxxx...'
    """
    if isinstance(value, str) and value.isidentifier():
        text = value
    elif isinstance(value, Enum):
        text = value.name
    elif isinstance(value, bool | int | float | str | tuple | None):
        text = repr(value)
    else:
        text = str(getattr(value, "__name__", type(value).__name__))
    return shortened(text if text.isprintable() else ascii(text))


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return the text of an argument, cut off where it is too long for a label."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def title(label: str) -> str:
    r"""Return the title of a kernel's text from its cell's label, which may be any text: a single line.

    >>> title("tree.leaf"), title("a\nb")
    ('tree.leaf', 'a\\nb')
    """
    return label if label.isprintable() else ascii(label)[1:-1]


def case_label(key: object, question: str) -> str:
    """Return the segment of a case in labels and paths: its key if that is a word, else what was asked, too.

    `question` is the user's word for what the key answers, empty without one.

    >>> case_label("leaf", "kind"), case_label(True, "is_leaf"), case_label(True, ""), case_label(list, "")
    ('.leaf', '(is_leaf=True)', '[True]', '.list')
    """
    word = key.name if isinstance(key, Enum) else getattr(key, "__name__", key)
    if isinstance(word, str) and word.isidentifier():
        return f".{word}"
    return f"({question}={key!r})" if question else f"[{key!r}]"


def tell_apart(choices: Iterable[Sequence[str]]) -> list[str]:
    """Return a label for each cell from its choices, shortest first, so that no two cells are called alike.

    A number is the last resort.

    >>> tell_apart([("a", "a"), ("b", "b.x"), ("b", "b.y")])
    ['a', 'b.x', 'b.y']
    >>> tell_apart([("a", "a.x"), ("a", "a.x"), ("a.x#1", "a.x#1")])
    ['a.x#2', 'a.x#3', 'a.x#1']
    """
    cells = [tuple(labels) for labels in choices]
    labels = [first for first, *_ in cells]
    for number in range(1, max(map(len, cells), default=0)):
        counts = Counter(labels)
        pairs = zip(labels, cells, strict=True)
        labels = [longer[min(number, len(longer) - 1)] if counts[x] > 1 else x for x, longer in pairs]
    counts = Counter(labels)
    taken = {label for label in labels if counts[label] == 1}
    apart: list[str] = []
    used = Counter[str]()  # the numbers that a label has had, so that many alike take no long search
    for label in labels:
        if counts[label] > 1:
            used[label] += 1
            apart.append(numbered(label, taken, used[label]))
        else:
            apart.append(label)
    return apart


def numbered(name: str, taken: set[str], first: int) -> str:
    """Return a name with the least number, from `first` on, that no name in `taken` has; it is added there.

    >>> numbered("tree", {"tree", "tree#2"}, 2)
    'tree#3'
    """
    while f"{name}#{first}" in taken:
        first += 1
    taken.add(f"{name}#{first}")
    return f"{name}#{first}"
