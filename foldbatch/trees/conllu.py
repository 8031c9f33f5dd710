"""Dependency treebanks in CoNLL-U, the format of Universal Dependencies: a streaming reader.

Source: https://universaldependencies.org/format.html. A word line has ten columns between tabs:
``ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC``. A blank line ends a sentence. Lines of
multiword tokens (``1-2``) and of empty nodes (``8.1``) are passed over.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NoReturn, get_args

from foldbatch.errors import BlockValueError, ReadError, with_nearest
from foldbatch.trees.text import read_pieces, shorten
from foldbatch.trees.tree import Label, Tree, flatten, trusted_tree

LabelField = Literal["deprel", "upos", "xpos"]
WordField = Literal["form", "lemma"]
HeadPlace = Literal["node", "leaf"]
Roots = Literal["error", "join", "skip"]
HEAD_LABEL = "head"  # of the leaf that holds a head's own word
JOINED_LABEL = ""  # of the node above several roots, as of the outer bracket of the Penn Treebank


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a sentence: the columns of CoNLL-U, None where the file has ``_``."""

    form: str  # the word as it is written
    lemma: str | None  # its base form
    upos: str | None  # its part of speech, of the universal list
    xpos: str | None  # its part of speech, of the treebank's own list
    feats: str | None  # its features as written, such as ``Case=Nom|Number=Sing``; see `features`
    head: int  # the number of the word that it depends on, counted from 1; 0 for a root
    deprel: str | None  # the name of that relation
    deps: str | None  # the enhanced graph as written
    misc: str | None  # all else, as written
    line: int  # the line of the file

    def features(self) -> dict[str, str]:
        """Return the word's features as a dict; a feature without a value has the value ``""``.

        >>> Word("I", "I", "PRON", None, "Case=Nom|Person=1", 2, "nsubj", None, None, 1).features()
        {'Case': 'Nom', 'Person': '1'}
        """
        pairs = (part.partition("=") for part in (self.feats or "").split("|") if part)
        return {name: value for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence in their order, and the comments of the file above them."""

    # the syntactic words; word number i is ``words[i - 1]``. Empty nodes are left out.
    words: tuple[Word, ...]
    comments: tuple[str, ...]  # the comment lines before the words, without ``#``
    name: str  # what the file is called in errors

    def notes(self) -> dict[str, str]:
        """Return the comments of the form ``key = value``, such as ``sent_id`` and ``text``.

        >>> Sentence((), ("sent_id = 7", "checked"), "text").notes()
        {'sent_id': '7'}
        """
        pairs = (comment.partition("=") for comment in self.comments)
        return {key.strip(): value.strip() for key, equals, value in pairs if equals}

    def roots(self) -> list[int]:
        """Return the numbers of the words that depend on no other."""
        return [number for number, word in enumerate(self.words, 1) if word.head == 0]

    def tree(
        self,
        label: LabelField = "deprel",
        words: WordField = "form",
        heads: HeadPlace = "node",
        roots: Roots = "error",
    ) -> Tree | None:
        """Return the tree of the sentence; see `read_conllu`. None if it is one to skip.

        Raises:
            BlockValueError: when an option is none of those listed.
            ReadError: when the sentence has several roots, and the option says "error".
        """
        check_options(label, words, heads, roots)
        tops = self.roots()
        if len(tops) > 1 and roots != "join":
            if roots == "skip":
                return None
            actual = f"a second root after word {tops[0]}"
            fix = "pass roots='join' for a node above all roots, or roots='skip'"
            raise ReadError(self.where(tops[1]), "one root", actual, fix)
        below = self.children()

        def expand(number: int, _: object) -> tuple[Label, str | None, Sequence[int]]:
            """Return label, word and children of a word by its number; -number is the leaf of a head."""
            if number == 0:
                return JOINED_LABEL, None, tops
            word = self.words[abs(number) - 1]
            text = word.form if words == "form" else word.lemma
            if number < 0:  # the leaf of a head
                return HEAD_LABEL, text, ()
            kids = below[number]
            if heads == "node" or not kids:
                return getattr(word, label), text, kids
            before = [child for child in kids if child < number]
            return getattr(word, label), None, [*before, -number, *kids[len(before) :]]

        return trusted_tree(*flatten(tops[0] if len(tops) == 1 else 0, expand))

    def where(self, number: int) -> str:
        """Return the place of a word in the file, as ``name:line:column``."""
        return f"{self.name}:{self.words[number - 1].line}:1"

    def children(self) -> list[list[int]]:
        """Return the numbers of the words below each word, in the sentence's order; [0] has the roots."""
        below: list[list[int]] = [[] for _ in range(len(self.words) + 1)]
        for number, word in enumerate(self.words, 1):
            below[word.head].append(number)
        return below


def check_options(label: str, words: str, heads: str, roots: str) -> None:
    """Raise unless each option is one of those listed."""
    options = {"label": (label, LabelField), "words": (words, WordField)}
    options |= {"heads": (heads, HeadPlace), "roots": (roots, Roots)}
    for name, (value, kind) in options.items():
        if value not in get_args(kind):
            expected, choices = f"{name} as one of {', '.join(map(repr, get_args(kind)))}", get_args(kind)
            raise BlockValueError("read_conllu", expected, with_nearest(value, choices), "pass one of them")


Source = str | os.PathLike[str] | Iterable[str]
COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_NO_WORD = re.compile(r"([0-9]{1,9})([-.])([0-9]{1,9})")  # a token of several words, or an empty node


def read_conllu(
    path_or_lines: Source,
    label: LabelField = "deprel",
    words: WordField = "form",
    *,
    heads: HeadPlace = "node",
    roots: Roots = "error",
    allow_empty: bool = False,
) -> Iterator[Tree]:
    r"""Yield the dependency trees of a CoNLL-U file (plain or ``.gz``), or of an iterable of lines.

    Args:
        path_or_lines: a path, or lines of text such as an open file.
        label: the column that labels nodes: "deprel", "upos" or "xpos"; None where it is ``_``.
        words: the column of tokens: "form" or "lemma".
        heads: where a word with dependents stands. "node": it is the token of the inner node, whose
            children are the dependents in the sentence's order; so the tree does not say on which side of
            its head a dependent stands. "leaf": the inner node has no token; the word is a leaf labelled
            "head" among the dependents, at its place in the sentence, so that ``tree.words()`` is the
            sentence if the tree is projective.
        roots: what becomes of a sentence with several roots: "error", "join" them below a node with the
            label ``""``, or "skip" the sentence.
        allow_empty: whether a file without any sentence will do.

    Raises:
        BlockValueError: when an option is none of those listed; at the call.
        ReadError: with ``file:line:column``, when the text is malformed: a wrong number of columns, an
            empty column, ids out of order, heads out of range, a cycle of heads; while iterating.

    >>> lines = ["1\tI\tI\tPRON\t_\t_\t2\tnsubj\t_\t_", "2\tslept\tsleep\tVERB\t_\t_\t0\troot\t_\t_", ""]
    >>> print(next(read_conllu(lines)).draw())
    root slept
    └─ nsubj I
    >>> next(read_conllu(lines, heads="leaf")).words()
    ('I', 'slept')
    """
    check_options(label, words, heads, roots)
    sentences = read_sentences(path_or_lines, allow_empty=allow_empty)
    trees = (sentence.tree(label, words, heads, roots) for sentence in sentences)
    return (tree for tree in trees if tree is not None)


def read_sentences(path_or_lines: Source, *, allow_empty: bool = False) -> Iterator[Sentence]:
    r"""Yield the sentences of a CoNLL-U file with all columns and comments; see `read_conllu`.

    Raises:
        ReadError: as `read_conllu`; sentences of several roots and crossing branches are read.

    >>> lines = ["# sent_id = s1", "1\tGo\tgo\tVERB\t_\tMood=Imp\t0\troot\t_\t_"]
    >>> sentence = next(read_sentences(lines))
    >>> sentence.notes(), sentence.words[0].features()
    ({'sent_id': 's1'}, {'Mood': 'Imp'})
    """
    lines: list[tuple[int, str]] = []  # of the sentence under way, with their numbers
    has_words, end = False, ""
    for piece in read_pieces(path_or_lines):
        for number, line in piece.lines():
            if line.strip():
                lines.append((number, line.removesuffix("\r")))
            elif any(not text.startswith("#") for _, text in lines):
                has_words = True
                yield _sentence(lines, piece.name)
                lines = []
        name, end = piece.name, piece.where(len(piece.text))
    if any(not text.startswith("#") for _, text in lines):
        has_words = True
        yield _sentence(lines, name)
    if not has_words and not allow_empty:
        fix = "check the path; in Python, allow_empty=True takes such a file"
        raise ReadError(end, "a sentence", "the end of the file", fix)


def _sentence(lines: Sequence[tuple[int, str]], name: str) -> Sentence:  # noqa: PLR0915 - one check a column
    """Return the sentence of numbered lines; raise a ReadError at the first column that does not fit."""
    comments: list[str] = []
    words: list[Word] = []
    columns: list[int] = []  # where each word's HEAD begins, for errors
    begun, end = False, 0  # the last word of the last token of several

    def refuse(line: int, column: int, expected: str, actual: str, fix: str) -> NoReturn:
        raise ReadError(f"{name}:{line}:{column}", expected, actual, fix)

    for number, line in lines:
        if line.startswith("#"):
            if begun:
                fix = "put comments before the sentence, and a blank line between sentences"
                refuse(number, 1, "a word or a blank line", "a comment", fix)
            comments.append(line[1:].strip())
            continue
        begun = True
        parts = line.split("\t")
        if len(parts) != len(COLUMNS):
            fix = "separate columns by tabs, and write _ where there is nothing"
            actual = f"{len(parts)} columns" if len(parts) > 1 else shorten(line)
            refuse(number, 1, f"{len(COLUMNS)} columns between tabs", actual, fix)
        starts = [0, *accumulate(len(part) + 1 for part in parts)]
        for place, part in enumerate(parts):
            if not part.strip():
                fix = "write _ where there is nothing"
                refuse(number, starts[place] + 1, f"a value as {COLUMNS[place]}", repr(part), fix)
        if no_word := _NO_WORD.fullmatch(parts[0]):
            first, last, count = int(no_word[1]), int(no_word[3]), len(words)
            if no_word[2] == ".":
                placed, expected, fix = (first == count, f"the ID {count}.1", "put empty nodes behind words")
            else:
                placed, expected = end <= count == first - 1 < last, f"the ID {count + 1}-N of several words"
                end, fix = last, "put tokens before their first word, and none within another"
            if not placed:
                refuse(number, 1, expected, shorten(parts[0]), fix)
            continue
        if parts[0] != str(len(words) + 1):
            fix = "number the words of a sentence from 1; a blank line ends a sentence"
            refuse(number, 1, f"the ID {len(words) + 1}", shorten(parts[0]), fix)
        if not _NUMBER.fullmatch(parts[6]):
            fix = "each word needs its head; parse the sentence first" if parts[6] == "_" else "correct it"
            refuse(number, starts[6] + 1, "the number of a word, or 0, as HEAD", shorten(parts[6]), fix)
        _, form, lemma, upos, xpos, feats, _, deprel, deps, misc = (x if x != "_" else None for x in parts)
        lemma = parts[2] if form is None else lemma  # the word _ has the lemma _
        head = int(parts[6])
        words.append(Word(parts[1], lemma, upos, xpos, feats, head, deprel, deps, misc, number))
        columns.append(starts[6] + 1)
    if end > len(words) > 0:
        fix = "check that the sentence is whole; a blank line ends it"
        refuse(number, 1, f"words up to {end}, as a token says", f"{len(words)}", fix)
    if not words:
        fix = "number the words from 1; a blank line ends a sentence"
        refuse(lines[-1][0], 1, "a sentence of one word or more", "none", fix)
    _check_heads(sentence := Sentence(tuple(words), tuple(comments), name), columns)
    return sentence


def _check_heads(sentence: Sentence, columns: Sequence[int]) -> None:
    """Raise a ReadError where a head is out of range, or heads form a cycle."""
    words = sentence.words
    for place, word in enumerate(words):
        if word.head > len(words) or word.head == place + 1:
            actual = f"{word.head}" + (", the word itself" if word.head == place + 1 else "")
            expected = f"a head from 0 to {len(words)}, and not the word itself"
            where = f"{sentence.name}:{word.line}:{columns[place]}"
            raise ReadError(where, expected, actual, "correct the head")
    below, reached = sentence.children(), [0]
    for number in reached:  # which grows
        reached += below[number]
    if len(reached) <= len(words):
        cycle = _cycle(sentence, set(reached))
        shown = cycle if len(cycle) <= 8 else [*cycle[:7], "...", cycle[-1]]
        actual, place = "a cycle of heads: " + " -> ".join(map(str, shown)), cycle[0] - 1
        expected, fix = "heads that lead to a root", "give one of them the head 0"
        where = f"{sentence.name}:{words[place].line}:{columns[place]}"
        raise ReadError(where, expected, actual, fix)


def _cycle(sentence: Sentence, reached: set[int]) -> list[int]:
    """Return the numbers of a cycle, the first of them again at its end; it starts with the lowest."""
    number = next(i for i in range(1, len(sentence.words) + 1) if i not in reached)
    seen: dict[int, int] = {}
    while number not in seen:
        seen[number] = len(seen)
        number = sentence.words[number - 1].head
    cycle = [word for word, step in seen.items() if step >= seen[number]]
    start = cycle.index(min(cycle))
    return [*cycle[start:], *cycle[: start + 1]]
