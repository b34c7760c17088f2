"""Reports: re-checked, compared, rendered."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from onnxplug_testkit import __version__, again, profiles, report
from onnxplug_testkit.check import CheckFailed, Unsupported
from onnxplug_testkit.cli import main
from onnxplug_testkit.kernels.cells import Cell
from onnxplug_testkit.kit import Kit
from onnxplug_testkit.mutants import mutants
from onnxplug_testkit.subject import resolve

ADD, OLD = Cell("", "Add", 14, "T", "tensor(float)"), Cell("", "Add", 7, "T", "tensor(float)")
HARD = Cell("ai.onnx.ml", "Scaler", 1, "T", "tensor(int64)")


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Kit:
    made = Kit(resolve("ref"), "kernels", seed=3)
    for name in (*(c.name for c in made.checks()), *made.claim_checks()):
        made.settle(name, None)
    monkeypatch.setattr(made, "names", lambda: list(made.ledger.tests))
    made.ledger.claim([ADD, OLD, HARD])
    made.ledger.proved([ADD, OLD], "oracle", 0.5)
    made.settle("contract.handshake", None)
    made.settle("memory.largest_block", Unsupported("max_allocation"))
    return made


def build(kit: Kit) -> dict[str, Any]:
    kit.finish()
    return report.build(kit, ["--ep", "ref"])


def test_an_unproven_cell_fails_the_whole(kit: Kit) -> None:
    data = build(kit)
    assert data["verdict"] == "failed"
    assert data["counts"]["cells"] == {"proven": 2, "failed": 0, "waived": 0, "unproven": 1}


def test_a_failed_trial_outweighs_passed_ones(kit: Kit) -> None:
    kit.ledger.proved([HARD], "oracle", 0)
    kit.ledger.broken([HARD], "wrong")
    assert kit.ledger.cells[HARD].status == "failed"
    assert build(kit)["verdict"] == "failed"


def test_conformant(kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kit.ledger.proved([HARD], "oracle", 2)
    path = tmp_path / "r.json"
    report.write(build(kit), path)
    assert main(["verify", str(path)]) == 0
    assert "conformant at level kernels, consistent" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "value"),
    [("verdict", "conformant with 0 waivers"), ("seed", 4), ("contract", "9.9"), ("cells", []), ("tests", [])],
)
def test_verify_notices_changes(kit: Kit, tmp_path: Path, field: str, value: Any) -> None:
    path = tmp_path / "r.json"
    report.write({**build(kit), field: value}, path)
    assert main(["verify", str(path)]) == 1


def test_verify_notices_a_verdict_that_does_not_follow(kit: Kit) -> None:
    data = {**build(kit), "verdict": "conformant"}
    data["digest"] = report.digest(data)
    assert any("its tests and cells say failed" in p for p in report.problems(data))


def test_verify_notices_another_distribution(kit: Kit) -> None:
    data = build(kit)
    data["distribution"] = {**data["distribution"], "record_sha256": "0" * 64}
    data["digest"] = report.digest(data)
    assert any("not the distribution that was judged" in p for p in report.problems(data))


def test_verify_notices_a_test_that_is_not_listed(kit: Kit) -> None:
    data = build(kit)
    data["tests"] = [t for t in data["tests"] if t["id"] != "memory.round_trip"]
    data["counts"]["tests"] = {**data["counts"]["tests"], "passed": data["counts"]["tests"]["passed"] - 1}
    data["digest"] = report.digest(data)
    assert any("not listed, memory.round_trip among them" in p for p in report.problems(data))


def test_verify_notices_a_proof_without_a_trial(kit: Kit) -> None:
    data = build(kit)
    data["cells"][0]["tests"] = 0
    data["digest"] = report.digest(data)
    assert any("without a trial" in p for p in report.problems(data))


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "onnxplug_testkit.cli", "--version"], capture_output=True, check=True)
    assert done.stdout.decode().strip() == __version__


def test_again_runs_tests_that_a_report_gives_as_passed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with mutants()["undecided"].subject() as broken:
        made = Kit(broken, "contract", seed=3)
        for check in made.checks():
            made.settle(check.name, None)
        made.finish()
        path = tmp_path / "r.json"
        report.write(report.build(made, []), path)
        assert main(["verify", str(path)]) == 0
        assert main(["verify", str(path), "--again", "99"]) == 1
    assert "contract.check_answers is given as passed, run again it is failed" in capsys.readouterr().out


def whole(made: Kit, path: Path) -> None:
    """Write the report of a run of the contract's checks."""
    for check in made.checks():
        try:
            check(made.subject, made.seed)
        except (AssertionError, Unsupported) as error:
            made.settle(check.name, error)
        else:
            made.settle(check.name, None)
    made.finish()
    report.write(report.build(made, []), path)


def test_again_with_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    whole(Kit(resolve("ref"), "contract", seed=3, profile=profiles.load("cnn, transformer")), path)
    assert main(["verify", str(path), "--again", "3"]) == 0
    path.write_text(path.read_text(encoding="utf-8").replace("cnn-1", "cnn-99"), encoding="utf-8")
    assert main(["verify", str(path), "--again", "3"]) == 2
    assert "the profile cnn-99 is not in this kit, which has cnn-1" in capsys.readouterr().err


def test_again_with_a_memory_option_that_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "r.json", list[tuple[Any, ...]]()
    whole(Kit(resolve("ref", limit_option="mem_limit"), "contract", seed=3), path)
    monkeypatch.setattr(again, "resolve", lambda *given: asked.append(given) or resolve(*given))
    assert main(["verify", str(path), "--again", "1"]) == 0
    assert asked == [("ReferenceExecutionProvider", {}, "mem_limit")]


def test_again_says_what_it_cannot_do(kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, data = tmp_path / "r.json", build(kit)
    data["provider"]["name"] = "NoSuchExecutionProvider"
    report.write({**data, "digest": report.digest(data)}, path)
    assert main(["verify", str(path), "--again", "2"]) == 1
    assert "it cannot be run again here: " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["verify", str(path), "--again", "-1"])
    assert "-1 is no number of tests" in capsys.readouterr().err


def test_diff(kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    report.write(build(kit), old)
    kit.ledger.proved([HARD], "oracle", 0)
    kit.settle("contract.handshake", CheckFailed("contract.handshake", "no"))
    report.write(build(kit), new)
    assert main(["diff", str(old), str(old)]) == 0
    assert main(["diff", str(old), str(new)]) == 1
    printed = capsys.readouterr().out
    assert "test contract.handshake: passed -> failed" in printed
    assert "cell ai.onnx.ml.Scaler-1-T-tensor(int64): unproven -> proven" in printed


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for text in ("", "[]", "{}", json.dumps({"report_version": 1})):
        path.write_text(text, encoding="utf-8")
        assert main(["verify", str(path)]) == 2
    assert main(["render", str(path), str(tmp_path / "r.pdf")]) == 2


def test_renderings(kit: Kit, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    kit.ledger.unreached({HARD: "declined: <script>alert(1)</script>"})
    report.write(build(kit), path)
    for ending in ("md", "html", "svg"):
        assert main(["render", str(path), str(tmp_path / f"r.{ending}")]) == 0
    markdown = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "| Add | 14 | T | float&nbsp;✓ |" in markdown and "| ai.onnx.ml.Scaler | 1 | T | int64&nbsp;? |" in markdown
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page and "<!--" not in page
    assert "http" not in page.replace("http-equiv", "")
    seen: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: seen.append(tag)  # type: ignore[method-assign]
    parser.feed(page)
    assert (
        seen.count("tr") == 2 + 1 + 3
    )  # heads, a test that is unsupported, a row for each operator, version and parameter
    assert "failed" in (tmp_path / "r.svg").read_text(encoding="utf-8")
