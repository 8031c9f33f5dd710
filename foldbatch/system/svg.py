"""SVG: elements and pages as text that needs nothing else."""

from html import escape

FONT = "system-ui, sans-serif"
INK, PAPER = "#1b1f24", "#ffffff"


def element(name: str, *inside: str, **attributes: str | float) -> str:
    """Return an element.

    >>> element("line", x1=0, y2=1.23456, stroke_width=2)
    '<line x1="0" y2="1.23" stroke-width="2"/>'
    """
    title = str(attributes.pop("title", ""))
    written = "".join(f' {key.strip("_").replace("_", "-")}="{_value(x)}"' for key, x in attributes.items())
    content = (f"<title>{words(title)}</title>" if title else "") + "".join(inside)
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(x: float, y: float, shown: str, **attributes: str | float) -> str:
    """Return words that begin at a point."""
    return element("text", words(shown), x=x, y=y, **attributes)


def words(shown: str) -> str:
    r"""Return words as XML has them; what cannot be printed, which XML may not have, as Python writes it.

    >>> words("a < b\x00")
    'a &lt; b\\x00'
    """
    return escape("".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in shown))


def page(width: float, height: float, *inside: str, font: str = FONT) -> str:
    """Return a page of that size, in pixels, with a ground of one colour."""
    ground = element("rect", class_="page", width=width, height=height, fill=PAPER)
    head = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {_value(width)} {_value(height)}"}
    size: dict[str, str | float] = {"width": width, "height": height, "font_family": font, "font_size": 12}
    return element("svg", "\n", "\n".join([ground, *inside]), "\n", **head, **size) + "\n"


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{round(value, 2):.10g}"
