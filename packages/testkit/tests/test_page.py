"""The HTML report in a browser: both colour schemes can be read, the filters filter."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onnxplug_testkit.page import page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--virtual-time-budget=5000", "--dump-dom",
)  # fmt: skip
SCHEMES = {"dark": 0, "light": 1}
LEGIBLE = 4.5
"""Contrast that WCAG 2 asks of body text (1.4.3, AA)."""

PROBE = (Path(__file__).parent / "page_probe.js").read_text(encoding="utf-8").replace("LEGIBLE", str(LEGIBLE))
"""Reads the page's colours, goes through its filters and leaves what it saw in the document."""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="capability chromium: no browser to show the page in")


def cell(op_type: str, version: int, type_: str, status: str, **more: Any) -> dict[str, Any]:
    return {
        "domain": "", "op_type": op_type, "version": version, "parameter": "T", "type": type_, "status": status, "tests": 3,
        "worst_ulp": 0.5, "oracles": ["ReferenceExecutionProvider"], "waivers": [], "reasons": [], **more,
    }  # fmt: skip


DATA: dict[str, Any] = {
    "verdict": "failed",
    "provider": {"name": "AcmeExecutionProvider", "vendor": "Acme", "options": {}},
    "distribution": {"name": "onnxplug-ep-acme", "version": "1.2.3", "record_sha256": ""},
    "devices": {"check": "1 board", "list": [{"type": "NPU", "id": 0, "vendor": "Acme", "name": "Anvil <1>"}]},
    "machine": {"system": "Linux", "python": "3.12", "onnxplug": "0.1.0", "onnx": "1.22"},
    "contract": "0.1", "kit": "0.1.0", "level": "kernels", "profile": None, "seed": 7, "command": ["--ep", "acme"],
    "time": "2026-01-01T00:00:00+00:00", "not_run": "", "waiver_problems": ["the waiver of memory.x matches no test"],
    "counts": {
        "cells": {"proven": 4, "failed": 1, "waived": 1, "unproven": 1},
        "tests": {"passed": 1, "failed": 1, "unsupported": 1, "expected": 1},
        "not_selected": 0,
    },
    "tests": [
        {"id": "contract.handshake", "status": "passed", "detail": "", "seconds": 0.1},
        {"id": "memory.largest_block", "status": "unsupported", "detail": "max_allocation is not there", "seconds": 0},
        {"id": "kernels.trial[Cast-13]", "status": "expected", "detail": "known (https://example.org/1)", "seconds": 0},
        {"id": "kernels.trial[Add-14]", "status": "failed", "detail": "1 is not 2 <b>\nsecond line", "seconds": 0},
    ],
    "cells": [
        cell("Add", 7, "tensor(float)", "proven"),
        cell("Add", 14, "tensor(float)", "proven"),
        cell("Add", 14, "tensor(int64)", "failed", reasons=["1 is not 2"]),
        cell("Cast", 13, "tensor(string)", "waived", waivers=["kernels.trial[Cast-13]"]),
        cell("Scaler", 1, "tensor(int64)", "unproven", domain="ai.onnx.ml", tests=0, oracles=[], reasons=["no <structure>"]),
        cell("Identity", 16, "seq(tensor(float))", "proven"),
        cell("Size", 13, "", "proven"),
    ],
}  # fmt: skip


def in_browser(folder: Path, scheme: str, fragment: str = "", width: int = 1400) -> dict[str, Any]:
    """What the probe tells of the page after it went through the filters."""
    file = folder / "report.html"
    file.write_text(page(DATA).replace("</html>", f"<script>{PROBE}</script></html>"), encoding="utf-8")
    command = [
        str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", f"{file.as_uri()}{fragment}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the page's script did not end: {done.stderr[-2000:]}\n{done.stdout[-2000:]}"
    answer: dict[str, Any] = json.loads(html.unescape(found[1]))
    return answer


@needs_chromium
@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_can_be_read(scheme: str, tmp_path: Path) -> None:
    answer = in_browser(tmp_path, scheme)
    assert answer["back"] == {"dark": "rgb(21, 23, 26)", "light": "rgb(255, 255, 255)"}[scheme]
    assert {"I.proven", "I.failed", "I.waived", "I.unproven", "TD.weak", "INPUT.", "SELECT."} <= set(answer["seen"])
    assert answer["faint"] == []


@needs_chromium
def test_it_fits_a_narrow_screen(tmp_path: Path) -> None:
    assert not in_browser(tmp_path, "light", width=500)["wide"]


@needs_chromium
def test_the_filters(tmp_path: Path) -> None:
    answer = in_browser(tmp_path, "light")
    operators = ["Add", "Add", "Cast", "Identity", "Size", "ai.onnx.ml.Scaler"]
    assert answer["all"]["cells"] == answer["reset"]["cells"] == operators
    assert answer["all"]["tests"] == ["kernels.trial[Add-14]", "kernels.trial[Cast-13]", "memory.largest_block"]
    assert answer["all"]["heads"][3:] == ["float", "int64", "string", "other"]
    assert (answer["words"]["cells"], answer["words"]["shown"]) == (["ai.onnx.ml.Scaler"], "1 of 6")
    assert answer["words"]["hash"] == "#words=scal"
    assert answer["status"]["cells"] == ["ai.onnx.ml.Scaler"]
    assert answer["type"]["cells"] == ["Add", "ai.onnx.ml.Scaler"]
    assert answer["type"]["heads"] == ["operator", "version", "parameter", "int64"]
    assert answer["detail"].startswith("ai.onnx.ml.Scaler 1 T, int64: unproven, 0 tests")
    assert "no <structure>" in answer["detail"]
    assert answer["reset"]["hash"] == ""


@needs_chromium
def test_a_link_brings_its_filters(tmp_path: Path) -> None:
    first = in_browser(tmp_path, "dark", "#status=failed&words=add")["all"]
    assert (first["cells"], first["tests"]) == (["Add"], ["kernels.trial[Add-14]"])


def test_it_is_one_file() -> None:
    text = page(DATA)
    assert not re.search(r"(?:src|href)\s*=|url\(|@import", text)
    assert "<b>" not in text and "<structure>" not in text and "<!--" not in text


def test_a_report_without_cells_has_no_matrix() -> None:
    text = page({**DATA, "cells": [], "counts": {**DATA["counts"], "cells": {}}})
    assert "<i " not in text and "0 cells" in text
