"""Python's own syntax trees as `Tree`s: what the standard `ast` module parses, flattened."""

import ast

from foldbatch.errors import ReadError
from foldbatch.trees import postorder
from foldbatch.trees.postorder import Label
from foldbatch.trees.tree import Tree, trusted_tree

LONGEST_CONSTANT = 24  # characters; a longer one has no token
_TOKEN_FIELDS = ("id", "attr", "arg", "name", "module", "rest")  # no type of node has two of them
_LONGEST_INT = 1 << 80  # the repr of a far longer one would raise


def python_tree(source: str | bytes | ast.AST, name: str = "source") -> Tree:
    """Return the syntax tree of Python source, or of a node that ``ast`` has parsed.

    Args:
        source: a module's text, or any node.
        name: what the source is called in errors, e.g. its path.

    Raises:
        ReadError: when the text is no Python, or nested deeper than Python's parser can follow.

    >>> print(python_tree("area = width * 2").draw())
    Module
    └─ Assign
       ├─ Name area
       └─ BinOp:Mult
          ├─ Name width
          └─ Constant:int 2
    """
    root: object = source if isinstance(source, ast.AST) else parse_python(source, name)
    return trusted_tree(*postorder.flatten(root, _expand))


def parse_python(source: str | bytes, name: str = "source") -> ast.Module:
    """Return what ``ast.parse`` does, with every failure turned into a `ReadError`."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        where = f"{name}:{error.lineno or 1}:{error.offset or 1}"
        raise ReadError(
            where, "Python source", error.msg, "is it written for another version of Python?"
        ) from None
    except (RecursionError, MemoryError) as error:
        found = f"deeper nesting ({type(error).__name__})"
        raise ReadError(
            f"{name}:1:1", "nesting that Python can parse", found, "split the expression"
        ) from None
    except ValueError as error:  # a NUL character, a lone surrogate
        raise ReadError(f"{name}:1:1", "Python source", str(error), "save the file as UTF-8 text") from None


def _expand(node: object, _: object) -> tuple[Label, str | None, list[object]]:
    assert isinstance(node, ast.AST)
    label = type(node).__name__
    token: str | None = None
    children: list[object] = []
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, list):
            parts = [part for part in value if isinstance(part, ast.AST)]
            if field == "ops":
                label += ":" + ",".join(type(part).__name__ for part in parts)
            else:
                children += parts
        elif isinstance(value, ast.AST):
            if field == "op":
                label += ":" + type(value).__name__
            elif field != "ctx":
                children.append(value)
        elif field in _TOKEN_FIELDS and isinstance(value, str):
            token = value
    if isinstance(node, ast.Constant | ast.MatchSingleton):
        label += ":" + type(node.value).__name__
        token = _constant_token(node.value)
    elif isinstance(node, ast.Global | ast.Nonlocal):
        token = ",".join(node.names)
    return label, token, children


def _constant_token(value: object) -> str | None:
    if isinstance(value, int) and abs(value) > _LONGEST_INT:
        return None
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_CONSTANT else None
