"""The page of a contest: one file of HTML, with plots where matplotlib is installed.

Names of files, classes and contents of examples are strangers' texts: all are escaped.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from foldbatch.contest.advice import Facts, spelled
from foldbatch.contest.running import Figures
from foldbatch.errors import install
from foldbatch.views import plots

STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 68em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: .3em .7em; border-bottom: 1px solid #ddd; }
td { text-align: right; } td:first-child, .text td { text-align: left; } th { text-align: right; }
.wins { color: #1a7f37; } .loses { color: #c8382c; }
.verdict { font-size: 1.2em; border-left: 4px solid #2f6fd0; padding-left: .8em; }
code { white-space: pre-wrap; word-break: break-word; } img { max-width: 100%; }"""
OUTCOMES = ("wins", "ties", "loses")


@dataclass(frozen=True, slots=True)
class Mistake:
    """A test example that foldbatch and the best baseline answer differently, and one of them right.

    Attributes:
        text: the example, shortened.
        answer: the right answer; ``ours`` and ``peer`` are those of foldbatch and the baseline.
        ours: see above.
        peer: see above.
        ours_is_right: whether it is foldbatch that is right.
    """

    text: str
    answer: str
    ours: str
    peer: str
    ours_is_right: bool


@dataclass(frozen=True, slots=True)
class Page:
    """The parts of a page.

    Attributes:
        source: where the examples are from.
        verdict: the sentence at the top; `summary` is the one below it.
        summary: see above.
        header: the heads of the table's columns; `rows` are its cells.
        rows: see above.
        not_run: sentences about contenders that did not run.
        trained: figures of those that did.
        facts: of the data.
        advice: what to try next.
        notes: what was guessed, left out or cut.
        mistakes: examples to show.
    """

    source: str
    verdict: str
    summary: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    not_run: Sequence[str]
    trained: Sequence[Figures]
    facts: Facts
    advice: Sequence[str]
    notes: Sequence[str]
    mistakes: Sequence[Mistake]


def written(page: Page) -> str:
    """Return a page as the text of one file of HTML."""
    settings = _settings(page.trained, page.facts)
    parts = [
        f"<h1>{escape(page.source)}</h1>",
        f"<p class=verdict>{escape(page.verdict)}</p>",
        f"<p>{escape(page.summary)}</p>",
        _table(page.header, page.rows),
        *(f"<p>{escape(sentence)}</p>" for sentence in page.not_run),
        *_pictures(page.trained, page.facts),
        "<h2>What to try next</h2>",
        _list(page.advice),
        "<h2>How it was done</h2>",
        _list(page.notes),
        _table(("", "setting that dev chose", "train", "dev", "test"), settings, "text"),
        *_mistakes(page.mistakes),
    ]
    title = escape(f"foldbatch compare {page.source}")
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
    return "\n".join([head, *parts, "</html>\n"])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table whose cells are escaped; those of outcomes have a colour."""
    heads = "".join(f"<th>{escape(text)}</th>" for text in header)
    lines = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    return f'<table class="{kind}"><tr>{heads}</tr>{"".join(lines)}</table>'


def _cell(text: str) -> str:
    colour = f" class={text}" if text in OUTCOMES else ""
    return f"<td{colour}>{escape(text)}</td>"


def _list(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"


def _settings(trained: Sequence[Figures], facts: Facts) -> list[tuple[str, ...]]:
    """Return a row for each contender: its setting, and its scores on the three parts."""
    return [
        (
            figures.title,
            figures.setting,
            spelled(figures.train_score, facts.task),
            spelled(figures.dev_score, facts.task),
            spelled(figures.score.figure, facts.task),
        )
        for figures in trained
    ]


def _mistakes(mistakes: Sequence[Mistake]) -> list[str]:
    """Return tables of examples that foldbatch alone, or the best baseline alone, gets right."""
    parts = []
    header = ("example of test", "answer", "foldbatch", "best baseline")
    for title, ours in (("foldbatch", True), ("the best baseline", False)):
        rows = [(m.text, m.answer, m.ours, m.peer) for m in mistakes if m.ours_is_right is ours]
        parts.append(f"<h2>Where {title} alone is right</h2>")
        parts.append(_table(header, rows, "text") if rows else "<p>No such example was drawn.</p>")
    return parts


def _pictures(trained: Sequence[Figures], facts: Facts) -> list[str]:
    """Return the plots of scores, and of dev by seconds, as images of the page."""
    if not plots.is_installed():
        return [f"<p>No plots: matplotlib is not installed; {escape(install('plot'))}.</p>"]
    return [_image(_scores(trained, facts), "scores"), _image(_curves(trained, facts), "curves")]


def _image(plot: plots.Plot, name: str) -> str:
    return f'<p><img alt="{name}" src="data:image/png;base64,{b64encode(plot.content("png")).decode()}"></p>'


def _measure(facts: Facts) -> str:
    return "accuracy" if facts.task == "class" else "R2"


def _scores(trained: Sequence[Figures], facts: Facts) -> plots.Plot:
    """Return the plot of scores on test with their intervals, beside CPU seconds."""
    figure, (scores, seconds) = plots.sheet(9.0, 0.6 + 0.45 * len(trained), 1, 2)
    places = range(len(trained))
    values = [x.score.figure for x in trained]
    errors = [
        [max(x.score.figure - x.score.low, 0.0) for x in trained],
        [max(x.score.high - x.score.figure, 0.0) for x in trained],
    ]
    colours = [plots.BLUE, *[plots.GREY] * (len(trained) - 1)]
    scores.errorbar(values, places, xerr=errors, fmt="none", ecolor=plots.INK, capsize=3)
    scores.scatter(values, places, color=colours, zorder=3)
    scores.set_yticks(places, [x.title for x in trained])
    scores.invert_yaxis()
    scores.set_xlabel(f"{_measure(facts)} on test, 95 % interval")
    seconds.barh(places, [x.cpu_seconds for x in trained], color=colours)
    seconds.set_yticks(places, [""] * len(trained))
    seconds.invert_yaxis()
    seconds.set_xlabel("CPU seconds of training")
    return plots.Plot(figure)


def _curves(trained: Sequence[Figures], facts: Facts) -> plots.Plot:
    """Return the plot of scores on dev by seconds of training."""
    lines = {x.title: list(x.curve) for x in trained if x.curve}
    return plots.curves({f"{_measure(facts)} on dev": lines}, "seconds")
