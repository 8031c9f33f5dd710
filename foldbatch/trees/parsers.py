"""Trees of texts that parsers of other libraries read: HTML by lxml, programs by tree-sitter."""

from functools import cache
from importlib import import_module
from typing import Any

from foldbatch.errors import BackendError, BlockValueError, ReadError, install
from foldbatch.trees.objects import from_
from foldbatch.trees.text import BYTE_ORDER_MARK
from foldbatch.trees.tree import Tree
from foldbatch.types import describe_value


def html_tree(source: str | bytes, name: str = "source") -> Tree:
    """Return the elements of a page: their tags as labels, and the text of each as its token.

    Pages with faults are mended as lxml does, which reads no deeper than 2,048 elements.

    Args:
        source: the text of a page, or of a part of one.
        name: what it is called in errors, e.g. its path.

    Raises:
        ReadError: when there is no element.
        BackendError: when lxml is not installed, the extra ``trees``.
    """
    try:
        from lxml import etree, html  # noqa: PLC0415 - it is needed for pages alone
    except ImportError as error:
        raise BackendError("html_tree", "lxml to be installed", "none", install("trees")) from error
    encoded = isinstance(source, str)
    text = (
        source.removeprefix(BYTE_ORDER_MARK).encode("utf-8", "replace") if isinstance(source, str) else source
    )
    parser = html.HTMLParser(huge_tree=True, encoding="utf-8" if encoded else None)
    try:
        page = html.document_fromstring(text, parser=parser)
    except (etree.ParserError, ValueError) as error:
        raise ReadError(f"{name}:1:1", "a page of HTML", str(error), "is it another file?") from None
    tree: Tree = from_(page)
    return tree


def code_tree(source: str | bytes, language: str, name: str = "source") -> Tree:
    """Return the syntax tree of a program in a language that tree-sitter parses.

    Labels are types of nodes, with an operator behind a colon; leaves have their text. What does not fit the
    grammar stands below nodes ``ERROR``.

    Args:
        source: the text of a program.
        language: its name, as of the package ``tree-sitter-NAME`` that has its grammar, which must be
            installed: ``"javascript"``.
        name: what the source is called in errors, e.g. its path.

    Raises:
        ReadError: when the text has no UTF-8.
        BlockValueError: when `language` is no name of a language.
        BackendError: when tree-sitter or the grammar is not installed.
    """
    parser = _parser(language)
    try:
        text = source.removeprefix(BYTE_ORDER_MARK).encode() if isinstance(source, str) else source
    except UnicodeEncodeError as error:
        raise ReadError(f"{name}:1:1", "text that UTF-8 can hold", str(error), "save it as UTF-8") from None
    tree: Tree = from_(parser.parse(text))
    return tree


@cache
def _parser(language: str) -> Any:
    """Return the parser of a language."""
    if not is_language(language):
        fix = "for example 'javascript'"
        raise BlockValueError("code_tree", "the name of a language", describe_value(language), fix)
    package = f"tree_sitter_{language.replace('-', '_')}"
    try:
        from tree_sitter import Language, Parser  # noqa: PLC0415 - it is needed for programs alone

        grammar = import_module(package)
    except ImportError as error:
        fix = f"pip install tree-sitter tree-sitter-{language.replace('_', '-')}"
        raise BackendError("code_tree", f"{package} to be installed", str(error), fix) from error
    names = ("language", f"language_{language.replace('-', '_')}")  # packages of several grammars name each
    pointer = next((getattr(grammar, name) for name in names if hasattr(grammar, name)), None)
    if pointer is None:
        raise BackendError("code_tree", f"a grammar in {package}", "none", "use another version of it")
    return Parser(Language(pointer()))


def is_language(name: str) -> bool:
    """Whether a name can be that of a language: small letters, digits, ``-`` and ``_``.

    >>> is_language("c_sharp"), is_language("os.path"), is_language("")
    (True, False, False)
    """
    return bool(name) and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")
