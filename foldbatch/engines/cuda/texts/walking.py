"""Kernels that read records of the control table and call the functions that these name.

``at_<op>`` runs one record, and returns at once where its op is negative: a captured graph has a launch for
every record of its class, and a batch has not all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from foldbatch.engines.cuda.texts.kernel_text import CONTROL_AT
from foldbatch.engines.cuda.texts.records import RECORD


class Called(NamedTuple):
    """A function that records call.

    Attributes:
        op: its number.
        name: of the function.
        x: threads along the elements of a row.
        arguments: how many, after the address of the table.
        shared: how many doubles the threads of a block share.
    """

    op: int
    name: str
    x: int
    arguments: int
    shared: int = 0


_AT = """\
KERNEL at_{name}(i8 table, i8 call) {{
  {shared}
  const i8* a = (const i8*)table + ((const i8*)table)[{control}] + {record} * call;
  if (a[0] < 0) return;
  {call}
}}
"""


def at_text(called: Iterable[Called]) -> str:
    """Return a kernel for each op."""
    return "\n".join(
        _AT.format(
            name=each.name, shared=_shared(each.shared), control=CONTROL_AT, record=RECORD, call=_call(each)
        )
        for each in called
    )


def _shared(count: int) -> str:
    return f"SHARED f8 shared_[{count}];" if count else "f8* shared_ = (f8*)0;"


def _call(each: Called) -> str:
    arguments = "".join(f", a[{1 + k}]" for k in range(each.arguments))
    return f"{each.name}({each.x}, shared_, table{arguments});"
