"""The outcome of a contest: plain data that print themselves, and become a page."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foldbatch.contest.advice import Facts, spelled
from foldbatch.contest.measures import Interval
from foldbatch.contest.page import Mistake, Page, written
from foldbatch.contest.running import Figures
from foldbatch.system.files import write_whole
from foldbatch.system.showing import Printed, table


@dataclass(frozen=True, slots=True)
class Rivalry:
    """foldbatch against one baseline, on the same examples of test.

    Attributes:
        title: of the baseline.
        gap: the score of foldbatch less that of the baseline, with the interval of a bootstrap in pairs.
        chance: of McNemar's test, for classes; None for numbers.
        outcome: ``wins``, ``ties`` or ``loses``: what foldbatch does.
    """

    title: str
    gap: Interval
    chance: float | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Comparison(Printed):
    """The outcome of `foldbatch.compare`; prints itself.

    Attributes:
        source: where the examples are from.
        facts: of the data.
        split: how many examples there are in each part, and the seed.
        contenders: figures of those that ran; foldbatch is the first one, the constant answer the last one.
        rivalries: foldbatch against each baseline.
        not_run: a sentence for those that did not run, and why.
        verdict: whether structure pays here.
        advice: what to try next.
        notes: what was guessed, left out or cut.
        mistakes: test examples that one of foldbatch and the best baseline gets right, and the other wrong.
        seconds: that the comparison took.
    """

    source: str
    facts: Facts
    split: str
    contenders: tuple[Figures, ...]
    rivalries: tuple[Rivalry, ...]
    not_run: tuple[str, ...]
    verdict: str
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    mistakes: tuple[Mistake, ...]
    seconds: float

    def table(self) -> str:
        """Return the figures of all contenders as a table of text."""
        return table(self.header(), self.rows())

    def header(self) -> tuple[str, ...]:
        """Return the heads of the table's columns."""
        measure = ("accuracy",) if self.facts.task == "class" else ("R2", "mean error")
        return ("", *measure, "95 % interval", "foldbatch", "by", "CPU s", "us/prediction", "KB", "lines")

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table's rows as texts, a tuple for each contender."""
        rivals = {rivalry.title: rivalry for rivalry in self.rivalries}
        return [self._row(figures, rivals.get(figures.title)) for figures in self.contenders]

    def _row(self, figures: Figures, rivalry: Rivalry | None) -> tuple[str, ...]:
        """Return the cells of a contender; of the constant answer, which is not trained, few."""
        task = self.facts.task
        low, high = spelled(figures.score.low, task), spelled(figures.score.high, task)
        error = () if figures.error is None else (f"{figures.error:.4g}",)
        trained = figures.cpu_seconds > 0
        return (
            figures.title if trained else figures.setting,
            spelled(figures.score.figure, task),
            *error,
            f"{low.removesuffix(' %')} to {high}",
            "" if rivalry is None else rivalry.outcome,
            "" if rivalry is None else spelled(rivalry.gap.figure, task, sign=True),
            f"{figures.cpu_seconds:.1f}" if trained else "",
            f"{figures.microseconds:.0f}" if trained else "",
            f"{figures.size / 1000:.0f}" if trained else "",
            str(figures.lines),
        )

    def __str__(self) -> str:
        return "\n".join([f"{self.source}: {self.split}", *self.notes, "", self.summary()])

    def summary(self) -> str:
        """Return the table, the verdict and advice as text, without what is known before the contest."""
        parts = [self.table(), *self.not_run]
        settings = [f"{x.title}: {x.setting}" for x in self.contenders if x.cpu_seconds]
        parts += [f"chosen on dev: {'; '.join(settings)}", "", f"Verdict: {self.verdict}"]
        parts += ["", "What to try next:", *(f"- {sentence}" for sentence in self.advice)]
        return "\n".join([*parts, "", f"All took {self.seconds:.0f} seconds."])

    def as_dict(self) -> dict[str, Any]:
        """Return the figures of the contenders, the verdict and the notes as plain data for JSON."""
        return asdict(self)

    def html(self, path: str | os.PathLike[str]) -> None:
        """Write the outcome to a file as a page of HTML that needs no other file; it is replaced.

        Plots need matplotlib, the extra ``plot``; without it the page says so.
        """
        trained = [figures for figures in self.contenders if figures.cpu_seconds]
        shown = Page(
            self.source,
            self.verdict,
            f"{self.split}; {self.seconds:.0f} seconds in all.",
            self.header(),
            self.rows(),
            self.not_run,
            trained,
            self.facts,
            self.advice,
            self.notes,
            self.mistakes,
        )
        write_whole(Path(path), written(shown).encode())
