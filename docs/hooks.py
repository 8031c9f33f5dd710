"""What mkdocs does besides: it runs the tutorials, and documents each public name of a module.

A notebook becomes a page with what its cells print, run in order, now. So the site shows what this version
does, and a tutorial that fails fails the build.

A line ``{all of foldbatch.ops}`` becomes the documentation of each public name there, so none is forgotten.
"""

from __future__ import annotations

import ast
import html
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

LINE = re.compile(r"^\{all of (\S+)(?: but those of (\S+))?\}$", re.MULTILINE)


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
    return LINE.sub(lambda found: directives(*found.groups()), linked)


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


def directives(module: str, others: str | None) -> str:
    """Return a directive for each public name of a module, but for those that another one has too."""
    return "\n\n".join(f"::: {module}.{name}" for name in names_of(module, others))


def names_of(module: str, others: str | None = None) -> list[str]:
    """Return the public names of a module, but for those that another one has too."""
    left_out = {*found(others).__all__} if others else set()
    return [name for name in found(module).__all__ if name not in left_out]


def found(name: str) -> Any:
    """Return a module by the name under which users know it, as ``foldbatch.ops``."""
    package, _, attribute = name.rpartition(".")
    return getattr(import_module(package), attribute)
