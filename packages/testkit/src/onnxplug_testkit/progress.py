"""A progress bar in the place of pytest's dots, on terminals: how much is done, what failed, how long it will take."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

import pytest

WIDTH = 24
REDRAWN = 0.1
"""Seconds between two drawings."""


class Progress:
    """A pytest plugin. Each test counts once; failures are shown in full by pytest in the end, as always."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stdout
        self._total = self._done = self._failed = 0
        self._began = self._drawn = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total, self._began = len(session.items), time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """What pytest counts, with no letter to print."""
        if report.when != "call" and report.passed:
            return "", "", ""
        return ("xfailed" if hasattr(report, "wasxfail") else report.outcome), "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._done += 1
        self._failed += report.failed
        now = time.monotonic()
        if now - self._drawn >= REDRAWN or self._done == self._total:
            self._drawn = now
            columns = shutil.get_terminal_size().columns - 1
            line = self.line(now - self._began, report.nodeid.rpartition("[")[2].rstrip("]"), columns)
            self._stream.write("\r" + line + "\x1b[K")
            self._stream.flush()

    def pytest_sessionfinish(self) -> None:
        self._stream.write("\r\x1b[K")
        self._stream.flush()

    def line(self, seconds: float, test: str, columns: int = 80) -> str:
        """The bar after ``seconds``, with the test that was last; on narrow terminals the bar gives way to the numbers."""
        share = self._done / self._total if self._total else 1.0
        left = f"{_clock(seconds / share - seconds)} left" if 0 < share < 1 else _clock(seconds)
        failed = f", {self._failed} failed" if self._failed else ""
        numbers = f"{share:4.0%} {self._done}/{self._total}{failed}, {left}"
        width = min(WIDTH, columns - len(numbers) - 3)
        full = round(share * width)
        bar = f"[{'#' * full}{'.' * (width - full)}] " if width > 0 else ""
        return f"{bar}{numbers}  {test}"[:columns].rstrip()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
