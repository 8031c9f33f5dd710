"""Trees and the data around them: the `Tree` type, readers, word vectors and an embedded data set."""

from foldbatch.trees.brackets import parse_brackets, read_brackets, read_sst, write_brackets
from foldbatch.trees.conllu import parse_conllu, read_conllu, read_sentences
from foldbatch.trees.embedding_tables import Coverage, embedding_matrix
from foldbatch.trees.json_text import read_json, read_json_trees, read_jsonlines, write_json
from foldbatch.trees.node import TreeNode
from foldbatch.trees.pyast import python_tree
from foldbatch.trees.sentences import Sentence, Word
from foldbatch.trees.stdlib_functions import (
    Corpus,
    Example,
    bag_baseline,
    majority_baseline,
    standard_library_functions,
)
from foldbatch.trees.tree import Tree
from foldbatch.trees.tree_statistics import TreeStatistics, tree_statistics
from foldbatch.trees.vectors import Vectors, read_vectors
from foldbatch.trees.vocabulary import Vocabulary

__all__ = [
    "Corpus",
    "Coverage",
    "Example",
    "Sentence",
    "Tree",
    "TreeNode",
    "TreeStatistics",
    "Vectors",
    "Vocabulary",
    "Word",
    "bag_baseline",
    "embedding_matrix",
    "majority_baseline",
    "parse_brackets",
    "parse_conllu",
    "python_tree",
    "read_brackets",
    "read_conllu",
    "read_json",
    "read_json_trees",
    "read_jsonlines",
    "read_sentences",
    "read_sst",
    "read_vectors",
    "standard_library_functions",
    "tree_statistics",
    "write_brackets",
    "write_json",
]
