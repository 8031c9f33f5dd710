"""What mkdocs does besides: it runs the tutorials, and documents each public name of a module.

A notebook becomes a page with what its cells print, run in order, now. So the site shows what this version
does, and a tutorial that fails fails the build.

What stands between ``<!-- all of foldbatch.ops -->`` and ``<!-- end -->`` becomes the documentation of each
public name there, so none is forgotten; ``<!-- only foldbatch.load -->`` begins that of single names.
In the checkout it is a table of these names, each with the first sentence of its documentation. Between
``<!-- program examples/guests/nltk_trees.py -->`` and ``<!-- end -->`` stands the text of a file.
``python docs/hooks.py`` writes tables and programs anew.
"""

from __future__ import annotations

import ast
import html
import inspect
import io
import json
import re
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PLACE = re.compile(r"^<!-- (all of|only) ([^>]+) -->\n(?:.*?\n)??<!-- end -->$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^<!-- program (\S+) -->\n(?:.*?\n)??<!-- end -->$", re.MULTILINE | re.DOTALL)
REFERENCE = Path(__file__).parent / "reference"
SHOWING = (Path(__file__).parent / "guests.md",)  # pages that show programs


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put a page in the place of each notebook."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - tests run notebooks without mkdocs

    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page = "\n\n".join(executed(Path(config.docs_dir, file.src_uri)))
        files.remove(file)
        files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=page))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with the directives of mkdocstrings in it, and links to the pages of notebooks."""
    linked = markdown.replace(".ipynb)", ".md)")
    return PLACE.sub(lambda place: "\n\n".join(f"::: {path}" for path in paths_of(*place.groups())), linked)


def executed(notebook: Path) -> list[str]:
    """Run a notebook; return its cells, and below each what it showed, as Markdown."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"], 1):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed, value = io.StringIO(), None
        with redirect_stdout(printed):
            value = run(source, f"{notebook.name}, cell {number}", names)
        parts += shown(printed.getvalue(), value)
    return parts


def run(source: str, where: str, names: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last line, if that is an expression."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)  # noqa: S102 - that is what a notebook is for
    return eval(compile(ast.Expression(last.value), where, "eval"), names) if last else None  # noqa: S307


def shown(printed: str, value: Any) -> list[str]:
    """Return what a cell printed, and its value as a browser shows it, as Markdown."""
    parts = [f'<pre class="output">{html.escape(printed.rstrip())}</pre>'] if printed.strip() else []
    for way in ("_repr_html_", "_repr_svg_"):
        drawn = getattr(value, way, lambda: None)()
        if drawn:
            return [*parts, f"<div>{drawn}</div>"]
    return parts if value is None else [*parts, f'<pre class="output">{html.escape(repr(value))}</pre>']


def paths_of(kind: str, text: str) -> list[str]:
    """Return the import paths of what a place documents: of all names of a module, or of those listed."""
    if kind == "only":
        return text.split()
    module, _, others = text.partition(" but those of ")
    return [f"{module}.{name}" for name in names_of(module, others)]


def names_of(module: str, others: str = "") -> list[str]:
    """Return the public names of a module, but for those that another one has too."""
    left_out = {*found(others).__all__} if others else set()
    return [name for name in found(module).__all__ if name not in left_out]


def with_tables(page: str) -> str:
    """Return a page of the reference with a table of names at each of its places.

    Raises:
        ImportError, BackendError: where what a place documents needs a library that is not installed.
    """
    return PLACE.sub(lambda place: table(*place.groups()), page)


def with_programs(page: str) -> str:
    """Return a page with the text of a file at each of its places for one."""

    def shown_at(place: re.Match[str]) -> str:
        text = Path(__file__).parents[1].joinpath(place[1]).read_text(encoding="utf-8")
        return f"<!-- program {place[1]} -->\n```py\n{text}```\n<!-- end -->"

    return PROGRAM.sub(shown_at, page)


def table(kind: str, text: str) -> str:
    """Return the table of a place, between the comments that mark it; of a module it has all names."""
    rows = []
    for path in paths_of(kind, text):
        value = found(path)
        members = members_of(value) if inspect.ismodule(value) else {path.rpartition(".")[2]: value}
        rows += [f"| `{name}` | {summary(member)} |" for name, member in members.items()]
    return "\n".join([f"<!-- {kind} {text} -->", "| name | what it is |", "|---|---|", *rows, "<!-- end -->"])


def members_of(module: Any) -> dict[str, Any]:
    """Return the public classes and functions that a module defines, by name."""
    defined = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    kinds = (inspect.isclass, inspect.isfunction)
    return {
        name: value
        for name, value in defined.items()
        if any(kind(value) for kind in kinds) and value.__module__ == module.__name__
    }


def summary(value: Any) -> str:
    """Return the first sentence of the documentation of a public name; data have none."""
    text = inspect.getdoc(value) if inspect.isroutine(value) or inspect.isclass(value) else None
    return " ".join((text or "").partition("\n\n")[0].split()).replace("|", "\\|")


def found(path: str) -> Any:
    """Return a module or a name by the path under which users know it, as ``foldbatch.ops``."""
    first, *names = path.split(".")
    value: Any = import_module(first)
    for name in names:
        value = getattr(value, name) if hasattr(value, name) else import_module(f"{value.__name__}.{name}")
    return value


if __name__ == "__main__":
    for path in sorted(REFERENCE.glob("*.md")):
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path in SHOWING:
        path.write_text(with_programs(path.read_text(encoding="utf-8")), encoding="utf-8")
