"""What commands print: JSON, or text with tables and bars; in colour on a terminal, plain elsewhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from onnxplug.cli.failure import CliError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Cell = str | tuple[str, str]
"""A text, or a text and its style."""

COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red")
_MARKS = "#=+*o%"
_WIDTH = 60


class OutputLost(OSError):
    """Standard output cannot be written: a full disk, a closed stream."""


class Output:
    """Standard output of one command. ``as_json``: ``json`` and ``failure`` are all that is printed."""

    def __init__(self, stream: TextIO, as_json: bool) -> None:
        self._stream, self.as_json = stream, as_json

    @cached_property
    def _console(self) -> Console | None:
        """Rich's console on a terminal (it honours NO_COLOR and TERM), None where text is piped or captured."""
        if not (self._stream.isatty() or os.environ.get("FORCE_COLOR")):
            return None
        from rich.console import Console

        return Console(file=self._stream, highlight=False, markup=False, emoji=False)

    @cached_property
    def _block(self) -> str:
        """A filled cell of a bar, if the terminal can show it."""
        try:
            "█".encode(getattr(self._stream, "encoding", None) or "ascii")
        except (UnicodeEncodeError, LookupError):
            return ""
        return "█" if self._console is not None else ""

    def json(self, data: Mapping[str, Any]) -> None:
        """One JSON document."""
        self._write(json.dumps(data, indent=2, allow_nan=False, default=str))

    def failure(self, error: CliError) -> int:
        """Report an error: JSON to standard output, else two lines to standard error. Returns its exit code."""
        if self.as_json:
            self.json(error.to_dict())
        else:
            print(f"onnxplug: {error.kind}: {_printable(error.message)}", file=sys.stderr)
            if error.hint:
                print(f"  next: {_printable(error.hint)}", file=sys.stderr)
        return error.code

    def line(self, *cells: Cell) -> None:
        """Cells side by side."""
        if self._console is None:
            self._write("".join(_text(cell) for cell in cells))
            return
        from rich.text import Text

        self._console.print(Text.assemble(*(_rich(cell) for cell in cells)), soft_wrap=True)

    def heading(self, text: str) -> None:
        """The title of a section, with a blank line before it."""
        self.line()
        self.line((text, "bold"))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[int] = ()) -> None:
        """A table without frame; columns whose index is in ``right`` are flushed right."""
        if self._console is not None:
            from rich.table import Table

            table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
            for index, header in enumerate(headers):
                table.add_column(header, justify="right" if index in right else "left", overflow="fold")
            for row in rows:
                table.add_row(*map(_rich, row))
            self._console.print(table)
            return
        texts = [list(headers), *([_text(cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        for row in texts:
            cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            self._write("  ".join(cells).rstrip())

    def bar(self, shares: Sequence[float]) -> None:
        """One bar, divided as ``shares`` (of one) are; the ``n``-th part has the look of ``mark(n)``."""
        cells = [max(1, round(_WIDTH * share)) if share > 0 else 0 for share in shares]
        if cells:
            cells[cells.index(max(cells))] -= sum(cells) - round(_WIDTH * sum(shares))
        marks = map(self.mark, range(len(cells)))
        self.line(*((mark * max(0, cell), style) for cell, (mark, style) in zip(cells, marks, strict=True)))

    def mark(self, number: int) -> tuple[str, str]:
        """The sign of the ``number``-th part of a bar: parts differ in colour, or in shape where there is none."""
        coloured = self._console is not None and not self._console.no_color
        return (self._block if coloured else "") or _MARKS[number % len(_MARKS)], COLOURS[number % len(COLOURS)]

    def length(self, share: float, style: str, width: int = 20) -> Cell:
        """A bar as a cell of a table."""
        return (self._block or "#") * max(1, round(width * share)) if share > 0 else "", style

    def _write(self, text: str) -> None:
        try:
            try:
                self._stream.write(text + "\n")
            except UnicodeEncodeError:
                encoding = self._stream.encoding
                self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(error.errno, error.strerror) from error


def number(value: float) -> str:
    """A number in at most six digits."""
    return f"{value:.6g}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def count(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``, ``2 copies``."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number} {noun if number == 1 else plural}"


def _printable(text: str) -> str:
    """Without what could steer a terminal: names come from models and plugins."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _text(cell: Cell) -> str:
    return _printable(cell if isinstance(cell, str) else cell[0]).replace("\n", "; ")


def _rich(cell: Cell) -> Text:
    from rich.text import Text

    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(_printable(text), style)
