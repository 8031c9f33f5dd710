"""Dates and times of day as ISO 8601 writes them: where they lie on the line of time, and in its cycles."""

import re
from datetime import UTC, date, datetime, time, timedelta
from math import cos, pi, sin
from typing import Literal, NamedTuple

Form = Literal["date", "date-time", "time"]
ISO = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})?((?(date)[T ])(?P<time>[0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?)"
    r"(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what has no zone is counted as it is written
DAY = 24 * 60 * 60.0  # seconds


class Moment(NamedTuple):
    """A date, a time of day, or both; its seconds are counted from 1970, or from midnight without a date."""

    form: Form
    seconds: float
    written: datetime  # as it is written, in its own zone; a time of day is on the first of January 1970


def moment_of(text: str) -> Moment | None:
    """Return the moment that a text of ISO 8601 is; None for another text.

    >>> moment_of("1970-01-02T00:00:01Z").seconds, moment_of("00:30").form, moment_of("6.5.2024")
    (86401.0, 'time', None)
    """
    match = ISO.fullmatch(text)
    if match is None or not text:
        return None
    try:
        if match["date"] is None:
            written = datetime.combine(EPOCH, time.fromisoformat(text).replace(tzinfo=None))
            return Moment("time", (written - EPOCH).total_seconds(), written)
        written = datetime.fromisoformat(text)
        counted = written if written.tzinfo is None else written.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # the 31st of February, or a zone beyond the first year
        return None
    form: Form = "date" if match["time"] is None else "date-time"
    return Moment(form, (counted - EPOCH).total_seconds(), written)


def cycles(moment: Moment) -> list[float]:
    """Return where a moment is in the year, the month, the week and the day: sine and cosine of each.

    Where there is no date or no time of day, these are zeros.

    >>> [round(x, 2) for x in cycles(moment_of("06:00"))]
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    """
    parts: list[float] = []
    day = moment.written
    if moment.form == "time":
        parts += [0.0] * 6
    else:
        for angle in (day.timetuple().tm_yday / 366, day.day / 31, day.weekday() / 7):
            parts += [sin(2 * pi * angle), cos(2 * pi * angle)]
    if moment.form == "date":
        return [*parts, 0.0, 0.0]
    angle = timedelta(hours=day.hour, minutes=day.minute, seconds=day.second).total_seconds() / DAY
    return [*parts, sin(2 * pi * angle), cos(2 * pi * angle)]


def written(form: Form, seconds: float) -> str:
    """Return the text of a moment, to the second.

    >>> written("date", 86401.5), written("date-time", 86401.5), written("time", 60.0)
    ('1970-01-02', '1970-01-02T00:00:01', '00:01:00')
    """
    moment = EPOCH + timedelta(seconds=int(seconds))
    day: date | time = moment.date() if form == "date" else moment.time()
    return (moment if form == "date-time" else day).isoformat()
