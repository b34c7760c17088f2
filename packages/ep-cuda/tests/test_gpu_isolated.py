"""Processes of their own for what ``nox -s gpu`` measures: one that dies, hangs or loses its device costs one result."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
CHILD = """
import os, pathlib, signal, sys, time
sys.path.insert(0, sys.argv[1])
import gpu_isolated

def measure(item):
    if item == "dies":
        print("a fault", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if item == "hangs":
        time.sleep(600)
    if item.startswith("raises"):
        raise ValueError("wrong")
    return {"process": os.getpid()}

gpu_isolated.device_lost = lambda: sys.argv[2] == "lost"
sys.exit(gpu_isolated.serve(measure, pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4])))
"""


@pytest.fixture
def isolated(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu_isolated")


def command(device: str = "fine") -> list[str]:
    return [sys.executable, "-c", CHILD, str(BENCHMARKS), device]


def test_what_dies_hangs_or_raises_is_one_result_and_the_rest_is_measured(isolated: Any) -> None:
    items = ["a", "dies", "b", "raises", "c", "hangs", "d"]
    rows = isolated.measured(command(), items, 8.0)
    assert [row["item"] for row in rows] == items
    errors = {row["item"]: row["error"] for row in rows if "error" in row}
    assert set(errors) == {"dies", "raises", "hangs"}
    assert "status -11" in errors["dies"] and "a fault" in errors["dies"]
    assert errors["raises"] == "ValueError: wrong" and errors["hangs"].startswith("took more than 8 s: ")
    assert "Segmentation fault" in errors["dies"] and all("in measure" in errors[name] for name in ("dies", "hangs"))
    process = {row["item"]: row["process"] for row in rows if "process" in row}
    assert process["b"] == process["c"] and len({process["a"], process["b"], process["d"]}) == 3


def test_several_processes_at_a_time_give_rows_in_order(isolated: Any) -> None:
    items = ["a", "dies", "b", "c", "d"]
    rows = isolated.side_by_side(command(), items, 60.0, jobs=2)
    assert [row["item"] for row in rows] == items and "error" in rows[1]
    process = [row.get("process") for row in rows]
    assert process[0] == process[2] == process[4] != process[3]


def test_behind_a_lost_device_a_process_is_begun_anew(isolated: Any) -> None:
    rows = isolated.measured(command("lost"), ["a", "raises", "b", "raises again"], 60.0)
    assert [("error" in row) for row in rows] == [False, True, False, True]
    assert rows[0]["process"] != rows[2]["process"]


def test_when_the_time_is_up_what_is_left_says_so(isolated: Any) -> None:
    rows = isolated.measured(command(), ["a", "b"], 60.0, time.monotonic() - 1)
    assert rows == [{"item": "a", "error": isolated.NOT_RUN}, {"item": "b", "error": isolated.NOT_RUN}]
    rows = isolated.measured(command(), ["hangs", "b"], 60.0, time.monotonic() + 2)
    assert [row["error"] for row in rows] == [isolated.NOT_RUN] * 2


def test_a_process_that_ends_without_a_result_is_not_begun_forever(isolated: Any) -> None:
    rows = isolated.measured([sys.executable, "-c", "pass"], ["a", "b"], 60.0)
    assert [row["error"] for row in rows] == ["ended without a result"] * 2


def test_a_row_that_is_cut_off_is_none(isolated: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    assert isolated.read(path) == []
    path.write_text('{"item": "a"}\n{"item": "b"')
    assert isolated.read(path) == [{"item": "a"}]


def test_a_first_item_waits_for_libraries(isolated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = ["sh", "-c", 'sleep 6; exec "$@"', "sh", *command()]
    assert [row.get("error") for row in isolated.measured(slow, ["a", "b"], 5.0)] == [None, None]
    monkeypatch.setattr(isolated, "_START", 0.5)
    assert "took more than 0.1 s" in isolated.measured(slow, ["a"], 0.1)[0]["error"]


def test_rows_are_told_of_as_they_come(isolated: Any) -> None:
    told: list[list[str]] = []
    items = ["a", "b", "hangs"]
    isolated.side_by_side(command(), items, 8.0, jobs=1, told=lambda rows: told.append([row["item"] for row in rows]))
    assert told and told[-1] == ["a", "b"]


def test_a_child_ends_with_its_parent(isolated: Any, tmp_path: Path) -> None:
    """It is a session of its own, which whoever kills the parent may not know."""
    given, report = tmp_path / "items", tmp_path / "rows"
    given.write_text('["a", "hangs"]')
    child = [*command(), str(given), str(report)]
    middle = f"import subprocess, time; subprocess.Popen({child!r}, start_new_session=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", middle])
    wait_for(lambda: bool(isolated.read(report)))
    process = isolated.read(report)[0]["process"]
    parent.kill()
    parent.wait()
    wait_for(lambda: not alive(process))


def alive(process: int) -> bool:
    """Whether a process runs; who waits for one that has ended is not asked."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_for(there: Callable[[], bool]) -> None:
    """Until something holds; fails where that takes minutes."""
    end = time.monotonic() + 120
    while not there():
        assert time.monotonic() < end
        time.sleep(0.05)
