"""A page of HTML that shows a description in the form of OpenAPI, and sends requests; it loads nothing.

All is in the page, so it works without a network, and a browser is told to load nothing from elsewhere.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import msgspec

# what a browser may load for the page: nothing; its script may ask this server
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer; padding: .4rem 0 }
details { border-top: 1px solid #8884; padding: .2rem 0 }
code, pre, textarea { font: 14px/1.4 ui-monospace, monospace }
pre { background: #8882; padding: .8rem; overflow: auto; white-space: pre-wrap }
textarea { width: 100%; box-sizing: border-box; min-height: 6rem }
td { padding: .1rem 1rem .1rem 0; vertical-align: top }
b { display: inline-block; min-width: 3.5rem }
"""
SCRIPT = """
for (const form of document.forms) form.addEventListener("submit", async event => {
  event.preventDefault();
  const shown = form.querySelector("output"), body = form.querySelector("textarea");
  const options = {method: form.dataset.method};
  if (body) Object.assign(options, {body: body.value, headers: {"Content-Type": "application/json"}});
  try {
    const answer = await fetch(form.dataset.path, options), text = await answer.text();
    let content = text;
    try { content = JSON.stringify(JSON.parse(text), null, 2) } catch {}
    shown.innerText = answer.status + "\\n" + content;
  } catch (error) { shown.innerText = error }
});
"""


def page(document: Mapping[str, Any]) -> str:
    """Return the page of a document of OpenAPI.

    >>> information = {"title": "trees <x>", "version": "1", "description": ""}
    >>> "trees &lt;x&gt;" in page({"info": information, "paths": {}, "components": {"schemas": {}}})
    True
    """
    information = {key: escape(text) for key, text in document["info"].items()}
    title = f"{information['title']}, version {information['version']}"
    operations = [
        "".join(_operation(path, method, operation))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<pre>{escape(_json(schema))}</pre></details>"
        for name, schema in document["components"]["schemas"].items()
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f"<h1>{information['title']}</h1><p>{information['description']}</p>"
        f'<p>This page shows <a href="openapi.json">openapi.json</a>, from which clients can be made.</p>'
        f"<h2>Requests</h2>{''.join(operations)}<h2>Schemas</h2>{''.join(schemas)}<script>{SCRIPT}</script></html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of the page for one request: what it is, a form to send it, its answers."""
    opened = " open" if path == "/predict" else ""
    yield f"<details{opened}><summary><b>{method.upper()}</b><code>{escape(path)}</code> "
    yield f"{escape(operation['summary'])}</summary>"
    yield f'<form data-method="{method.upper()}" data-path="{escape(path.removeprefix("/"))}">'
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: {escape(kind)}, {_link(content['schema'])}</p>"
        yield f"<textarea>{escape(_json(content['example']))}</textarea>"
    yield "<p><button>Send</button></p><pre><output></output></pre></form><table>"
    for status, response in operation["responses"].items():
        contents = [*response.get("content", {}).values()] or [{}]
        schema = contents[0].get("schema", {})
        yield f"<tr><td>{status}<td>{escape(response['description'])}<td>{_link(schema)}"
    yield "</table></details>"


def _link(schema: Mapping[str, Any]) -> str:
    """Return a link to a schema of the page, where it has a name."""
    name = escape(schema.get("$ref", "").rpartition("/")[2])
    return f'<a href="#{name}">{name}</a>' if name else ""


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
