"""transformers: a tree reads the outputs of an encoder, and gradients flow back into it."""

from collections.abc import Iterator
from typing import Any

import nltk
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertModel

import foldbatch as fb

SIZE = 8
EXAMPLES = [nltk.Tree.fromstring(text) for text in ("(S (NP the film) (VP ended))", "(S (NP a film) ended)")]
WORDS = fb.trees.Vocabulary(["the", "a", "film", "ended"])
torch.manual_seed(0)
settings = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": SIZE}
encoder = BertModel(
    BertConfig(vocab_size=len(WORDS), hidden_size=SIZE, **settings)
).eval()  # of random weights
joined = fb.Linear(SIZE, "tanh", name="joined")

tree = fb.ForwardDeclaration(output_type=SIZE, name="tree")
phrase = fb.Map(tree()) >> fb.Sum() >> joined
tree.resolve_to(fb.OneOf(lambda part: isinstance(part, list), {True: phrase, False: fb.Vector(SIZE)}))
module = fb.torch.Module(tree())


@fb.cell
def join(parts: list["float32[8]"]) -> Any:
    """Return the state of a phrase."""
    return joined(fb.ops.segment_sum(parts))


def walk(part: Any) -> Any:
    """Do as the block does."""
    return join([walk(child) for child in part]) if isinstance(part, list) else fb.tensor(part)


def filled(part: Any, rows: Iterator[Any]) -> Any:
    """Return a tree as nested lists, with a vector for each word."""
    return next(rows) if isinstance(part, str) else [filled(child, rows) for child in part]


def encoded(trees: list[Any]) -> list[Any]:
    """Return trees over what the encoder makes of their words."""
    ids = [torch.tensor([WORDS[word] for word in tree.leaves()]) for tree in trees]
    mask = pad_sequence([torch.ones_like(own) for own in ids], batch_first=True)
    outputs = encoder(pad_sequence(ids, batch_first=True), attention_mask=mask).last_hidden_state
    return [filled(tree, iter(rows)) for tree, rows in zip(trees, fb.torch.rows(outputs), strict=True)]
