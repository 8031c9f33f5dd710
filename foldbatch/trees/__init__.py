"""Trees and the data around them: the `Tree` type, readers, word vectors and an embedded data set."""

from foldbatch.trees.brackets import parse_brackets, read_brackets, read_sst, write_brackets
from foldbatch.trees.conllu import Sentence, Word, read_conllu, read_sentences
from foldbatch.trees.json_text import read_json, read_json_trees, read_jsonlines, write_json
from foldbatch.trees.objects import from_, register
from foldbatch.trees.parsers import code_tree, html_tree
from foldbatch.trees.pyast import Corpus, Example, python_functions, python_tree, standard_library_functions
from foldbatch.trees.shaping import binarise, collapse_unary
from foldbatch.trees.tree import Tree, TreeNode
from foldbatch.trees.tree_statistics import tree_statistics
from foldbatch.trees.vectors import Coverage, Vectors, embedding_matrix, read_vectors
from foldbatch.trees.vocabulary import Vocabulary

__all__ = [
    "Corpus",
    "Coverage",
    "Example",
    "Sentence",
    "Tree",
    "TreeNode",
    "Vectors",
    "Vocabulary",
    "Word",
    "binarise",
    "code_tree",
    "collapse_unary",
    "embedding_matrix",
    "from_",
    "html_tree",
    "parse_brackets",
    "python_functions",
    "python_tree",
    "read_brackets",
    "read_conllu",
    "read_json",
    "read_json_trees",
    "read_jsonlines",
    "read_sentences",
    "read_sst",
    "read_vectors",
    "register",
    "standard_library_functions",
    "tree_statistics",
    "write_brackets",
    "write_json",
]


def __dir__() -> list[str]:
    return __all__
