"""The cells a test run executed and passed, for ``tools/operators_table.py``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from operators.cells import Cell

VARIABLE = "ONNXPLUG_OPERATORS_RECORD"


class Record:
    """Passing cells by who judged them."""

    def __init__(self) -> None:
        self._cells: dict[Cell, set[str]] = {}

    def add(self, cell: Cell, sources: Iterable[str]) -> None:
        """This cell passed on ``CPUExecutionProvider``; with "reference" among the sources, the other provider ran it too."""
        self._cells.setdefault(cell, set()).update(sources)

    def write(self) -> None:
        """Write the file the environment names; nothing without one."""
        path = os.environ.get(VARIABLE)
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            rows = [[*cell, sorted(sources)] for cell, sources in sorted(self._cells.items())]
            Path(path).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
