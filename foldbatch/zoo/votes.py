"""Votes: what a tree holds, wherever it stands, adds numbers to the scores that a deep model gives it.

Source: Cheng et al. 2016, Wide and Deep Learning for Recommender Systems.
"""

from foldbatch.blocks import Embedding, Function, InputTransform, Map, Scalar, Sum
from foldbatch.blocks.purity import pure
from foldbatch.trees.tree import TreeNode
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.zoo.tasks import AnyBlock, Task, only_element
from foldbatch.zoo.words import name_of, subwords

MAX_COUNTED = 6  # of children and of arguments are counted


@pure
def features_of(node: TreeNode) -> tuple[str, ...]:
    """Return the features of a tree, each once: kinds of nodes, kinds in kinds, words, and an outline.

    The outline says which kinds the children of the root have, which is the first and which the last, how
    many children there are, and how large the tree is. The arguments of a Python function are counted
    apart, and are none of the children.

    >>> features_of(fb.trees.Tree([1, -1], ["Name", "Return"], ["readLine", None]))[:6]
    ('0 arguments', '1 children', 'child Name', 'first Name', 'kind Name', 'kind Name in Return')
    """
    tree = node.tree
    names, parents = list(map(name_of, tree.labels)), tree.parents.tolist()
    root = tree.size - 1
    features = {f"kind {name}" for name in names}
    features |= {f"word {word}" for token in tree.tokens for word in subwords(token)}
    inner = zip(names[:root], parents[:root], strict=True)
    features |= {f"kind {name} in {names[parent]}" for name, parent in inner}
    children = [names[place] for place in range(root) if parents[place] == root]
    body = [name for name in children if name != "arguments"]
    features |= {f"child {name}" for name in body}
    features |= {f"first {name}" for name in body[:1]} | {f"last {name}" for name in body[-1:]}
    counts = {f"{min(len(body), MAX_COUNTED)} children", f"{min(names.count('arg'), MAX_COUNTED)} arguments"}
    return tuple(sorted(features | counts | {f"size {root.bit_length()}"}))


def votes(features: Vocabulary, task: Task) -> AnyBlock:
    """Return a block from a tree to the sum of the votes of its features; all votes start as zeros.

    Args:
        features: those that have votes; all others together have one row.
        task: says how many numbers a vote has.
    """
    vote: AnyBlock = Scalar("int32") >> Embedding(len(features), max(task.classes, 1), "zeros", name="votes")
    feature_votes: AnyBlock = InputTransform(features_of) >> Map(InputTransform(features.__getitem__) >> vote)
    total = feature_votes >> Sum()
    return total >> Function(only_element) if task.kind == "number" else total
