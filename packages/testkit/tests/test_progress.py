"""The bar on terminals."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxplug_testkit.progress import Progress


def report(when: str, outcome: str = "passed") -> Any:
    return SimpleNamespace(
        when=when,
        outcome=outcome,
        passed=outcome == "passed",
        failed=outcome == "failed",
        nodeid="suite/test_kit.py::test_trial[Add-14]",
    )


def test_a_bar_counts_tests_and_failures() -> None:
    stream = io.StringIO()
    bar = Progress(stream)
    bar.pytest_collection_finish(SimpleNamespace(items=[1, 2]))  # type: ignore[arg-type]
    for outcome in ("passed", "failed"):
        for when in ("setup", "call", "teardown"):
            bar.pytest_runtest_logreport(report(when, outcome if when == "call" else "passed"))
    assert "100% 2/2, 1 failed" in stream.getvalue() and "Add-14" in stream.getvalue()
    assert bar.pytest_report_teststatus(report("call", "failed")) == ("failed", "", "")
    assert bar.pytest_report_teststatus(report("setup")) == ("", "", "")


def test_it_says_how_long_it_will_take() -> None:
    bar = Progress(io.StringIO())
    bar.pytest_collection_finish(SimpleNamespace(items=[1, 2, 3, 4]))  # type: ignore[arg-type]
    bar.pytest_runtest_logreport(report("teardown"))
    assert bar.line(30, "Add-14") == "[######..................]  25% 1/4, 1:30 left  Add-14"


def test_on_a_narrow_terminal_the_numbers_stay() -> None:
    bar = Progress(io.StringIO())
    bar.pytest_collection_finish(SimpleNamespace(items=[1, 2, 3, 4]))  # type: ignore[arg-type]
    bar.pytest_runtest_logreport(report("teardown"))
    assert bar.line(30, "Add-14", 29) == "[##.....]  25% 1/4, 1:30 left"
    assert bar.line(30, "Add-14", 20) == " 25% 1/4, 1:30 left"


@pytest.mark.skipif(sys.platform == "win32", reason="capability pty: no pseudo-terminals here")
@pytest.mark.parametrize("columns", [100, 40])
def test_a_run_on_a_terminal(columns: int, tmp_path: Path) -> None:
    """A run of the kit, its output a pseudo-terminal: no line of the bar is longer than that, and none is left behind."""
    import fcntl
    import pty
    import struct
    import termios

    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--pyargs",
        "onnxplug_testkit",
        "--ep",
        "reference",
    ]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    running = subprocess.Popen(
        [*command, "--level", "contract", "-k", "entry_point"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=tmp_path,
        env=environment,
    )
    os.close(inner)
    written = b""
    with contextlib.suppress(OSError):  # which is how a pseudo-terminal ends
        while part := os.read(outer, 1 << 16):
            written += part
    os.close(outer)
    running.wait()
    bars = re.findall(r"\r(\[[#.]+\] [^\r\x1b]*)\x1b\[K", written.decode())
    assert bars, written.decode()
    assert max(map(len, bars)) < columns and "100%" in bars[-1]
    assert written.decode().rpartition(bars[-1])[2].startswith("\x1b[K\r\x1b[K")
