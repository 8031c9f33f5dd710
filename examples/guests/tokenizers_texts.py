"""Hugging Face's tokenizers: an `Encoding` has the numbers of its words."""

from typing import Any

from nodes import SIZE, Doors
from tokenizers import Tokenizer, models, pre_tokenizers

import foldbatch as fb

tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "fine": 2, "film": 3}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
EXAMPLES = tokenizer.encode_batch(["a fine film", "a long film about a film"])
words, mixed = fb.Embedding(4, SIZE, name="words"), fb.Linear(SIZE, "tanh", name="mixed")


@fb.cell
def step(state: Any, word: Any) -> Any:
    """Read the next word."""
    return mixed(state + words(word))


def walk(encoding: Any) -> Any:
    """Return the state after the last word."""
    state = fb.tensor([0.0] * SIZE)
    for word in encoding.ids:
        state = step(state, word)
    return state


def ids(encoding: Any) -> list[int]:
    """Return the numbers of the words."""
    return list(encoding.ids)


add = fb.Function(lambda state, word: mixed(state + word))
block = fb.InputTransform(ids) >> fb.Map(fb.Scalar("int32") >> words) >> fb.Fold(add, fb.Zeros([SIZE]))
doors = Doors(walk, block)
