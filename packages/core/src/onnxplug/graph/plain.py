"""What is said of exceptions that NumPy and Python raise where operands do not go together: their words are of the arrays inside a kernel.
Whoever raises what is said here keeps the exception as its cause."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dis import opmap
from typing import Any

# Texts, which ``re`` compiles for the first error.
_OUT_OF_RANGE = r"index (-?[0-9]+) is out of bounds for axis [0-9]+ with size ([0-9]+)$"
_OF_ARRAYS = (
    r"could not be broadcast|could not broadcast|cannot be broadcast|shape mismatch:|cannot reshape|index out of range"
    r"|is out of bounds for (axis|array of dimension)|too many indices for array|boolean index did not|axes don't match"
    r"|same number of dimensions|array dimensions except|not have enough dimensions|mismatch in its core dimension"
    r"|cannot select an axis|zero-size array|negative dimensions|need at least one array|0-d array|only length-1 arrays"
    r"|only integer scalar arrays|only 0-dimensional|truth value of an array|values to unpack"
    r"|object is not (iterable|subscriptable)|shapes .* not aligned|maximum supported dimension"
    r"|non-broadcastable output|from an empty axes|can only convert an array of size 1|has no len\(\)"
)


_RAISE = opmap["RAISE_VARARGS"]


def _is_told(error: Exception) -> bool:
    """Whether an author of other code than NumPy wrote what ``error`` says: a ``raise`` of theirs is where it comes from."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code, at = trace.tb_frame.f_code.co_code, trace.tb_lasti
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    return 0 <= at < len(code) and code[at] == _RAISE and module.partition(".")[0] != "numpy"


def _sizes(operand: Any) -> str:
    """What is said of an operand: its shape, or the first few of a sequence's."""
    if (shape := getattr(operand, "shape", None)) is not None:
        return f"has shape {{{','.join(map(str, shape))}}}"
    if not isinstance(operand, list):
        return ""
    first = ", ".join(f"item {at} {said}" for at, item in enumerate(operand[:4]) if (said := _sizes(item)))
    return f"is a sequence of {len(operand)}{f' ({first})' if first else ''}"


def plain(error: Exception, operands: Iterable[Any] = ()) -> str | None:
    """A sentence with the sizes of the ``operands`` (what has a ``shape``, lists of that, None for an omitted one) in the place of what
    ``error`` says, where that is of arrays; None where its words are for the reader."""
    text, given = str(error), list(operands)
    if not isinstance(error, (ValueError, TypeError, IndexError)) or _is_told(error):
        return None
    sizes = [f"input {index} {said}" for index, operand in enumerate(given) if (said := _sizes(operand))]
    told = f": {', '.join(sizes)}" if sizes else ""
    if "NoneType" in text and any(operand is None for operand in given):
        return f"an input that it needs is left out{told}"
    if (found := re.match(_OUT_OF_RANGE, text)) is not None:
        return f"its inputs and attributes do not go together, {found[1]} is no place on an axis of {found[2]}{told}"
    return f"its inputs and attributes do not go together{told}" if re.search(_OF_ARRAYS, text) else None
