"""Dependency treebanks in CoNLL-U, the format of Universal Dependencies: a streaming reader.

Source: https://universaldependencies.org/format.html. A word line has ten columns between tabs:
``ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC``. A blank line ends a sentence. Lines of
multiword tokens (``1-2``) and of empty nodes (``8.1``) are checked, and make no nodes of trees.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NoReturn, get_args

from foldbatch.errors import BlockValueError, ReadError, with_nearest
from foldbatch.trees.text import TextPiece, read_pieces, shorten, text_pieces, whole_pieces
from foldbatch.trees.tree import Label, Tree, trusted_tree

LabelField = Literal["deprel", "upos", "xpos"]
WordField = Literal["form", "lemma"]
HeadPlace = Literal["node", "leaf"]
Roots = Literal["error", "join", "skip"]
Crossing = Literal["keep", "error", "skip"]
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
    """The words of a sentence in their order, and what the file says about the sentence."""

    # the syntactic words; word number i is ``words[i - 1]``. Empty nodes are left out.
    words: tuple[Word, ...]
    comments: tuple[str, ...]  # the comment lines before the words, without ``#``
    # the written tokens that stand for several words: ``(first, last, form)``
    multiword: tuple[tuple[int, int, str], ...]
    name: str  # what the file is called in errors

    def notes(self) -> dict[str, str]:
        """Return the comments of the form ``key = value``, such as ``sent_id`` and ``text``.

        >>> Sentence((), ("sent_id = 7", "checked"), (), "text").notes()
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
        crossing: Crossing = "keep",
    ) -> Tree | None:
        """Return the tree of the sentence; see `read_conllu`. None if it is one to skip.

        Raises:
            BlockValueError: when an option is none of those listed.
            ReadError: when the sentence has several roots, or its tree is not projective, and the option
                says "error".
        """
        check_options(label, words, heads, roots, crossing)
        tops = self.roots()
        if len(tops) > 1 and roots != "join":
            if roots == "skip":
                return None
            found = f"a second root after word {tops[0]}"
            fix = "pass roots='join' for a node above all roots, or roots='skip'"
            raise ReadError(self.where(tops[1]), "one root", found, fix)
        order = self.post_order(tops)
        if crossing != "keep" and (broken := self.first_crossing(order)):
            if crossing == "skip":
                return None
            found = f"words of others between those below word {broken}"
            fix = "pass crossing='keep' or 'skip'"
            raise ReadError(self.where(broken), "a projective tree", found, fix)
        return self._grow(order, label, words, several=len(tops) > 1, leaf_heads=heads == "leaf")

    def where(self, number: int) -> str:
        """Return the place of a word in the file, as ``name:line:column``."""
        return f"{self.name}:{self.words[number - 1].line}:1"

    def children(self) -> list[list[int]]:
        """Return the numbers of the words below each word, in the sentence's order; [0] has the roots."""
        below: list[list[int]] = [[] for _ in range(len(self.words) + 1)]
        for number, word in enumerate(self.words, 1):
            below[word.head].append(number)
        return below

    def post_order(self, tops: list[int], *, heads: bool = False) -> list[int]:
        """Return the numbers of the words that hang from `tops`, children before their heads.

        With `heads`, minus the number of each head stands among its children, too.
        """
        below = self.children()
        order: list[int] = []
        stack = list(tops)
        while stack:  # a word, then its children right to left: post-order backwards
            number = stack.pop()
            order.append(number)
            if not heads:
                stack += below[number]
            elif number > 0 and below[number]:
                left = [child for child in below[number] if child < number]
                stack += [*left, -number, *below[number][len(left) :]]
        order.reverse()
        return order

    def first_crossing(self, order: list[int]) -> int:
        """Return the first word of `order` whose subtree has a gap in the sentence, or 0 if none has."""
        count = len(self.words) + 1
        size, low, high = [1] * count, list(range(count)), list(range(count))
        for number in order:
            if high[number] - low[number] + 1 != size[number]:
                return number
            head = self.words[number - 1].head
            size[head] += size[number]
            low[head] = min(low[head], low[number])
            high[head] = max(high[head], high[number])
        return 0

    def _grow(
        self, order: list[int], label: LabelField, words: WordField, *, several: bool, leaf_heads: bool
    ) -> Tree:
        parents: list[int] = []
        labels: list[Label] = []
        tokens: list[str | None] = []
        waiting: dict[int, list[int]] = {}  # the finished children of each head, by index

        def add(node_label: Label, node_token: str | None, below: list[int]) -> int:
            node = len(parents)
            for child in below:
                parents[child] = node
            parents.append(-1)
            labels.append(node_label)
            tokens.append(node_token)
            return node

        if leaf_heads:
            order = self.post_order(self.roots(), heads=True)
        for number in order:
            word = self.words[abs(number) - 1]
            text = word.form if words == "form" else word.lemma
            if number < 0:  # the leaf of a head
                waiting.setdefault(-number, []).append(add(HEAD_LABEL, text, []))
                continue
            below = waiting.pop(number, [])
            node = add(getattr(word, label), None if leaf_heads and below else text, below)
            waiting.setdefault(word.head, []).append(node)
        if several:
            add(JOINED_LABEL, None, waiting[0])
        return trusted_tree(parents, labels, tokens)


def check_options(label: str, words: str, heads: str, roots: str, crossing: str) -> None:
    """Raise unless each option is one of those listed."""
    kinds = (("label", label, LabelField), ("words", words, WordField), ("heads", heads, HeadPlace),
             ("roots", roots, Roots), ("crossing", crossing, Crossing))  # fmt: skip
    for name, value, kind in kinds:
        if value not in get_args(kind):
            choices = ", ".join(map(repr, get_args(kind)))
            fix = "pass one of them"
            raise BlockValueError(
                "read_conllu", f"{name} as one of {choices}", with_nearest(value, get_args(kind)), fix
            )


Source = str | os.PathLike[str] | Iterable[str]
COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
_EMPTY = re.compile(r"(0|[1-9][0-9]{0,8})\.([1-9][0-9]{0,8})")


def read_conllu(
    path_or_lines: Source,
    label: LabelField = "deprel",
    words: WordField = "form",
    *,
    heads: HeadPlace = "node",
    roots: Roots = "error",
    crossing: Crossing = "keep",
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
        crossing: what becomes of a tree that is not projective: "keep" it (its children stay in the
            sentence's order), "error", or "skip" it.
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
    check_options(label, words, heads, roots, crossing)
    sentences = read_sentences(path_or_lines, allow_empty=allow_empty)
    trees = (sentence.tree(label, words, heads, roots, crossing) for sentence in sentences)
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
    return _parse(read_pieces(path_or_lines), allow_empty=allow_empty)


def parse_conllu(
    text: str,
    label: LabelField = "deprel",
    words: WordField = "form",
    *,
    heads: HeadPlace = "node",
    roots: Roots = "error",
) -> Tree:
    r"""Return the tree of the one sentence that `text` holds; see `read_conllu`.

    Raises:
        BlockValueError: when an option is none of those listed.
        ReadError: when the text is malformed or holds another number of sentences.

    >>> parse_conllu("1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n", "upos").label
    'VERB'
    """
    check_options(label, words, heads, roots, "keep")
    sentences = list(islice(_parse(text_pieces(text), allow_empty=False), 2))
    if len(sentences) > 1:
        fix = "read several with read_conllu(text.splitlines())"
        raise ReadError(sentences[1].where(1), "one sentence", "a second one", fix)
    tree = sentences[0].tree(label, words, heads, "error" if roots == "skip" else roots)
    assert tree is not None
    return tree


@dataclass(slots=True)
class _SentenceDraft:
    name: str
    comments: list[str] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    multiword: list[tuple[int, int, str]] = field(default_factory=list)
    head_columns: list[int] = field(default_factory=list)  # where each word's HEAD begins, for errors
    line: int = 0  # the last one that is no comment
    range_line: int = 0
    empty: int = 0  # the number of the last empty node after the last word

    @property
    def begun(self) -> bool:
        return self.line > 0

    def take(self, line: str, number: int) -> None:
        if line.startswith("#"):
            if self.begun:
                fix = "put comments before the sentence, and a blank line between sentences"
                self.refuse(number, 1, "a word or a blank line", "a comment", fix)
            self.comments.append(line[1:].strip())
            return
        self.line = number
        parts = line.split("\t")
        if len(parts) != len(COLUMNS):
            fix = "separate columns by tabs, and write _ where there is nothing"
            found = f"{len(parts)} columns" if len(parts) > 1 else shorten(line)
            self.refuse(number, 1, f"{len(COLUMNS)} columns between tabs", found, fix)
        for place, part in enumerate(parts):
            if not part.strip():
                fix = "write _ where there is nothing"
                self.refuse(number, _column(parts, place), f"a value as {COLUMNS[place]}", repr(part), fix)
        if parts[0] == str(len(self.words) + 1):
            self.take_word(parts, number)
        elif span := _RANGE.fullmatch(parts[0]):
            self.take_range(int(span[1]), int(span[2]), parts, number)
        else:
            self.take_empty(parts, number)

    def take_word(self, parts: list[str], number: int) -> None:
        if not _NUMBER.fullmatch(parts[6]):
            fix = "each word needs its head; parse the sentence first" if parts[6] == "_" else "correct it"
            expected = "the number of a word, or 0, as HEAD"
            self.refuse(number, _column(parts, 6), expected, shorten(parts[6]), fix)
        _, form, lemma, upos, xpos, feats, _, deprel, deps, misc = (
            None if part == "_" else part for part in parts
        )
        lemma = parts[2] if form is None else lemma  # the word _ has the lemma _
        head = int(parts[6])
        self.words.append(Word(parts[1], lemma, upos, xpos, feats, head, deprel, deps, misc, number))
        self.head_columns.append(_column(parts, 6))
        self.empty = 0

    def take_range(self, first: int, last: int, parts: list[str], number: int) -> None:
        begin = max(len(self.words), self.multiword[-1][1] if self.multiword else 0) + 1
        if first != len(self.words) + 1 or first < begin or last <= first:
            expected = f"a range from {len(self.words) + 1}, right before its first word"
            self.refuse(number, 1, expected, shorten(parts[0]), "correct the range; ranges do not overlap")
        self.multiword.append((first, last, parts[1]))
        self.range_line = number

    def take_empty(self, parts: list[str], number: int) -> None:
        found = _EMPTY.fullmatch(parts[0])
        if not found or int(found[1]) != len(self.words) or int(found[2]) != self.empty + 1:
            expected = f"the ID {len(self.words) + 1}, or {len(self.words)}.{self.empty + 1} of an empty node"
            fix = "number the words of a sentence from 1; a blank line ends a sentence"
            self.refuse(number, 1, expected, shorten(parts[0]), fix)
        self.empty += 1

    def finish(self) -> Sentence:
        count = len(self.words)
        if not count:
            fix = "number the words from 1; a blank line ends a sentence"
            self.refuse(self.line, 1, "a sentence of one word or more", "none", fix)
        if self.multiword and self.multiword[-1][1] > count:
            first, last, _ = self.multiword[-1]
            expected = f"a range up to word {count} at most"
            self.refuse(self.range_line, 1, expected, f"'{first}-{last}'", "correct the range")
        for index, word in enumerate(self.words):
            if word.head > count or word.head == index + 1:
                found = f"{word.head}" + (", the word itself" if word.head == index + 1 else "")
                expected = f"a head from 0 to {count}, and not the word itself"
                self.refuse(word.line, self.head_columns[index], expected, found, "correct the head")
        sentence = Sentence(tuple(self.words), tuple(self.comments), tuple(self.multiword), self.name)
        reached = sentence.post_order(sentence.roots())
        if len(reached) < count:
            cycle = _cycle(sentence, set(reached))
            shown = cycle if len(cycle) <= 8 else [*cycle[:7], "...", cycle[-1]]
            where = cycle[0]
            found = "a cycle of heads: " + " -> ".join(map(str, shown))
            line, column = self.words[where - 1].line, self.head_columns[where - 1]
            self.refuse(line, column, "heads that lead to a root", found, "give one of them the head 0")
        return sentence

    def refuse(self, line: int, column: int, expected: str, found: str, fix: str) -> NoReturn:
        raise ReadError(f"{self.name}:{line}:{column}", expected, found, fix)


def _column(parts: list[str], place: int) -> int:
    return sum(len(part) + 1 for part in parts[:place]) + 1


def _cycle(sentence: Sentence, reached: set[int]) -> list[int]:
    """Return the numbers of a cycle, the first of them again at its end; it starts with the lowest."""
    number = next(i for i in range(1, len(sentence.words) + 1) if i not in reached)
    seen: dict[int, int] = {}
    while number not in seen:
        seen[number] = len(seen)
        number = sentence.words[number - 1].head
    cycle = [other for other, step in seen.items() if step >= seen[number]]
    start = cycle.index(min(cycle))
    return [*cycle[start:], *cycle[: start + 1]]


def _parse(pieces: Iterable[TextPiece], *, allow_empty: bool) -> Iterator[Sentence]:
    draft: _SentenceDraft | None = None
    any_sentence = False
    end = ""
    for piece in whole_pieces(pieces, "\n"):
        draft = draft or _SentenceDraft(piece.name)
        for number, line in enumerate(piece.text.removesuffix("\n").split("\n"), piece.line):
            if line.strip():
                draft.take(line.removesuffix("\r"), number)
            elif draft.begun:
                any_sentence = True
                yield draft.finish()
                draft = _SentenceDraft(piece.name)
        end = piece.where(len(piece.text))
    if draft is not None and draft.begun:
        any_sentence = True
        yield draft.finish()
    if not any_sentence and not allow_empty:
        fix = "check the path; allow_empty=True takes such a file"
        raise ReadError(end, "a sentence", "the end of the file", fix)
