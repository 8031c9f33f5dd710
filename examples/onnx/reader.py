"""Labels of binary trees in brackets, by a graph that `foldbatch export` wrote: NumPy and onnxruntime alone.

python examples/onnx/reader.py model.onnx < trees.txt
"""

import json
import re
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def nodes_of(text: str) -> list[tuple[Any, int]]:
    """Return a tree's nodes, children first: the word, or the places of two children, and the height."""
    nodes, open_nodes = [], [[]]
    for part in re.findall(r"[()]|[^\s()]+", text):
        if part == "(":
            open_nodes.append([])
        elif part != ")":
            open_nodes[-1].append(part)  # the label, then perhaps a word
        else:
            nested, below = len(open_nodes) > 1, open_nodes.pop()[1:]
            word = [type(x) for x in below] == [str]
            if not nested or not (word or [type(x) for x in below] == [int, int]):
                refuse(text)
            open_nodes[-1].append(len(nodes))
            nodes.append((below[0], 0) if word else (below, 1 + max(nodes[i][1] for i in below)))
    if open_nodes != [[len(nodes) - 1]]:
        refuse(text)
    return nodes


def refuse(text: str) -> None:
    """End the program with one line about a text that is no binary tree."""
    sys.exit(
        f"error: standard input: expected a binary tree such as (3 (4 good) (2 film)), found {text[:60]!r}"
    )


def tables(texts: list[str], vocabulary: dict[str, int], described: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of a batch by name. Rows are numbered: words first, then phrases by height."""
    trees = [nodes_of(text) for text in texts]
    starts = np.cumsum([0, *map(len, trees)])
    below = [
        [start + i for i in x] if h else x
        for start, tree in zip(starts, trees, strict=False)
        for x, h in tree
    ]
    heights = np.array([height for tree in trees for _, height in tree])
    order = np.argsort(heights, kind="stable")
    row, levels = np.argsort(order), np.searchsorted(heights[order], np.arange(1, heights.max() + 2))
    made = {"results.rows": np.arange(len(trees))}
    for cell in described["cells"]:
        at_nodes = row if "node" in cell["metrics"] else row[starts[1:] - 1]
        phrases = row[np.array([below[i] for i in order[levels[0] :]], np.int64).reshape(-1, 2)]
        made |= dict.fromkeys(cell["operands"], phrases if cell["recursive"] else at_nodes)
        words = [vocabulary.get(below[i], 0) for i in order[: levels[0]]] if cell["feeds"] else []
        made |= dict.fromkeys(cell["feeds"], np.array(words, np.int32))
        made |= {f"order.{metric}": np.arange(len(at_nodes)) for metric in cell["metrics"]}
        counts = ("starts", levels - levels[0]) if cell["recursive"] else ("calls", [len(words or at_nodes)])
        made[f"cell{cell['cell']}.{counts[0]}"] = np.array(counts[1])
    return made


def main(path: str, lines: Iterable[str]) -> None:
    """Print the label of each tree, and of its nodes, children first, where the model tells them."""
    try:  # of bytes, not of the path: then the file cannot have other files read as its numbers
        session = onnxruntime.InferenceSession(Path(path).read_bytes(), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the library has no class of its own for them
        sys.exit(f"error: {path}: expected an ONNX model that stands alone, found one that raises {error}")
    texts = session.get_modelmeta().custom_metadata_map
    if missing := {"classes", "foldbatch.tables", "vocabulary"} - texts.keys():
        sys.exit(f"error: {path}: expected a model of trees and their words, found one without {missing}")
    classes, described = json.loads(texts["classes"]), json.loads(texts["foldbatch.tables"])
    vocabulary = {word: number for number, word in enumerate(json.loads(texts["vocabulary"]))}
    names, rest = [output.name for output in session.get_outputs()], filter(str.strip, lines)
    while batch := list(islice(rest, 64)):
        made = tables(batch, vocabulary, described)
        if missing := [table.name for table in session.get_inputs() if table.name not in made]:
            sys.exit(f"error: {path}: expected a model of binary trees, found one that takes {missing}")
        outputs = dict(zip(names, session.run(names, made), strict=True))
        nodes = iter(outputs.get("metrics.node", ()))
        for text, scores in zip(batch, outputs["results"], strict=True):
            labels = [classes[one.argmax()] for _, one in zip(nodes_of(text), nodes, strict=False)]
            print(classes[scores.argmax()], " ".join(labels), sep="\t")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/onnx/reader.py model.onnx < trees.txt")
    main(sys.argv[1], sys.stdin)
