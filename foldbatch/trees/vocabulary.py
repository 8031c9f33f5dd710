"""`Vocabulary`: words and their numbers, with number 0 for every word that is not in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from foldbatch.errors import BlockValueError
from foldbatch.types import describe_value

UNKNOWN = "<unk>"


class _Numbers(dict[str, int]):
    def __missing__(self, word: str) -> int:
        return 0


class Vocabulary:
    """An immutable list of distinct words that answers with a word's number; unknown words get 0.

    Args:
        words: the words, numbered from 1 in this order; `unknown` itself may stand among them.
        unknown: the name of number 0.

    Raises:
        BlockValueError: when a word is given twice or is no str.

    >>> vocabulary = Vocabulary(["a", "gem"])
    >>> vocabulary["gem"], vocabulary["loom"], len(vocabulary), list(vocabulary)
    (2, 0, 3, ['<unk>', 'a', 'gem'])

    It is a function, too: ``InputTransform(vocabulary)`` reads a word as its number.

    >>> vocabulary("gem")
    2
    """

    __slots__ = ("_numbers", "unknown", "words")

    words: tuple[str, ...]
    unknown: str
    _numbers: _Numbers

    def __init__(self, words: Iterable[str], unknown: str = UNKNOWN) -> None:
        if isinstance(words, str) or not isinstance(words, Iterable):
            raise BlockValueError("Vocabulary", "an iterable of words", describe_value(words), "write [word]")
        numbers = _Numbers({unknown: 0})
        for word in words:
            if not isinstance(word, str):
                fix = "leave out nodes without a token"
                raise BlockValueError("Vocabulary", "words of str", describe_value(word), fix)
            if word == unknown:
                continue
            if word in numbers:
                fix = "pass dict.fromkeys(words), or use Vocabulary.count"
                raise BlockValueError("Vocabulary", "distinct words", f"{word!r} twice", fix)
            numbers[word] = len(numbers)
        object.__setattr__(self, "words", tuple(numbers))
        object.__setattr__(self, "unknown", unknown)
        object.__setattr__(self, "_numbers", numbers)

    @classmethod
    def count(
        cls, words: Iterable[str], minimum: int = 1, unknown: str = UNKNOWN, maximum: int | None = None
    ) -> Vocabulary:
        """Return the vocabulary of the words met at least `minimum` times, the most frequent first.

        Words met equally often keep the order in which they were first met. With `maximum`, only so many of
        the most frequent words are taken.

        >>> list(Vocabulary.count("to be or not to be".split(), minimum=2))
        ['<unk>', 'to', 'be']
        >>> list(Vocabulary.count("to be or not to be".split(), maximum=3))
        ['<unk>', 'to', 'be', 'or']
        """
        counts = Counter(words)
        counts.pop(unknown, None)
        return cls((word for word, times in counts.most_common(maximum) if times >= minimum), unknown)

    def __getitem__(self, word: str) -> int:
        return self._numbers[word]

    def numbers(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of several words.

        >>> Vocabulary(["a", "gem"]).numbers(["gem", "loom"])
        [2, 0]
        """
        return list(map(self._numbers.__getitem__, words))

    __call__ = __getitem__  # so that it is a function of words, as for `InputTransform`

    def __contains__(self, word: object) -> bool:
        return word in self._numbers

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __setattr__(self, name: str, value: object = None) -> None:
        raise AttributeError(f"Vocabulary.{name}: a vocabulary is immutable; build another")

    __delattr__ = __setattr__

    def __eq__(self, other: object) -> bool:
        return self.words == other.words if isinstance(other, Vocabulary) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.words)

    def __reduce__(self) -> tuple[object, ...]:
        return Vocabulary, (self.words, self.unknown)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words, unknown={self.unknown!r})"
