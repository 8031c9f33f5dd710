"""Sentences of dependency treebanks: their words, and the `Tree` that the heads of the words make.

In come words that name their heads, out comes a tree. Each word is a node; the words that depend on
it are its children, in the order of the sentence. Nothing recurses: a sentence may be a chain of any
length.

Source: a tree is projective if the words of each subtree stand side by side (Marcus 1965).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from foldbatch.errors import BlockValueError, ReadError, with_nearest
from foldbatch.trees.postorder import Label
from foldbatch.trees.tree import Tree, trusted_tree

LabelField = Literal["deprel", "upos", "xpos"]
WordField = Literal["form", "lemma"]
HeadPlace = Literal["node", "leaf"]
Roots = Literal["error", "join", "skip"]
Crossing = Literal["keep", "error", "skip"]
HEAD_LABEL = "head"  # of the leaf that holds a head's own word
JOINED_LABEL = ""  # of the node above several roots, as of the outer bracket of the Penn Treebank


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a sentence: the columns of CoNLL-U, None where the file has ``_``.

    Attributes:
        form: the word as it is written.
        lemma: its base form.
        upos: its part of speech, of the universal list.
        xpos: its part of speech, of the treebank's own list.
        feats: its features as written, such as ``Case=Nom|Number=Sing``; see `features`.
        head: the number of the word that it depends on, counted from 1; 0 for a root.
        deprel: the name of that relation.
        deps: the enhanced graph as written.
        misc: all else, as written.
        line: the line of the file.
    """

    form: str
    lemma: str | None
    upos: str | None
    xpos: str | None
    feats: str | None
    head: int
    deprel: str | None
    deps: str | None
    misc: str | None
    line: int

    def features(self) -> dict[str, str]:
        """Return the word's features as a dict; a feature without a value has the value ``""``.

        >>> Word("I", "I", "PRON", None, "Case=Nom|Person=1", 2, "nsubj", None, None, 1).features()
        {'Case': 'Nom', 'Person': '1'}
        """
        pairs = (part.partition("=") for part in (self.feats or "").split("|") if part)
        return {name: value for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence in their order, and what the file says about the sentence.

    Attributes:
        words: the syntactic words; word number i is ``words[i - 1]``. Empty nodes are left out.
        comments: the comment lines before the words, without ``#``.
        multiword: the written tokens that stand for several words: ``(first, last, form)``.
        name: what the file is called in errors.
    """

    words: tuple[Word, ...]
    comments: tuple[str, ...]
    multiword: tuple[tuple[int, int, str], ...]
    name: str

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

    def post_order(self, tops: list[int]) -> list[int]:
        """Return the numbers of the words that hang from `tops`, children before their heads."""
        below = self.children()
        order: list[int] = []
        stack = list(tops)
        while stack:  # a word, then its children right to left: post-order backwards
            number = stack.pop()
            order.append(number)
            stack.extend(below[number])
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
        """Return the tree of words in post-order, with the heads in leaves of their own if asked for."""
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
            order = self._post_order_with_heads()
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

    def _post_order_with_heads(self) -> list[int]:
        """Return the words in post-order, with minus the number of each head among its children."""
        below = self.children()
        longer: list[int] = []
        stack = list(below[0])
        while stack:
            number = stack.pop()
            longer.append(number)
            if number > 0 and below[number]:
                left = [child for child in below[number] if child < number]
                stack += [*left, -number, *below[number][len(left) :]]
        longer.reverse()
        return longer


def check_options(label: str, words: str, heads: str, roots: str, crossing: str) -> None:
    """Raise unless each option is one of those listed.

    Raises:
        BlockValueError: when one is not.
    """
    kinds = (("label", label, LabelField), ("words", words, WordField), ("heads", heads, HeadPlace),
             ("roots", roots, Roots), ("crossing", crossing, Crossing))  # fmt: skip
    for name, value, kind in kinds:
        if value not in get_args(kind):
            choices = ", ".join(map(repr, get_args(kind)))
            fix = "pass one of them"
            raise BlockValueError(
                "read_conllu", f"{name} as one of {choices}", with_nearest(value, get_args(kind)), fix
            )
