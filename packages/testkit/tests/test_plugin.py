"""The pytest plugin from outside: options, verdicts, exit codes, reports."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onnxplug.contract import CONTRACT_VERSION
from onnxplug_testkit.plugin import NOT_RUN, PARTIAL

CONTRACT = ".".join(map(str, CONTRACT_VERSION))
TOMORROW = datetime.date.today() + datetime.timedelta(days=1)
PLUGIN = """
import dataclasses
from onnxplug.contract import KernelRegistry, Unavailable
from onnxplug.plugins import registry
from onnxplug_ep_reference.plugin import onnxplug_provider
from onnxplug_ep_reference.provider import ReferenceProvider

class Small(ReferenceProvider):
    def get_kernel_registry(self):
        return KernelRegistry(d for d in super().get_kernel_registry() if d.op_type in OPERATORS)

from onnxplug_testkit.checks import memory
memory.SESSIONS = 14

def offer(name, **changes):
    spec = dataclasses.replace(onnxplug_provider(), name=name, create=Small, **changes)
    registry.register_provider(spec)

"""


def run(folder: Path, *arguments: str, plugin: str = "") -> tuple[int, str, dict[str, Any]]:
    """Exit code, output and report of the kit in a fresh interpreter."""
    extra: list[str] = []
    if plugin:
        (folder / "offering.py").write_text(PLUGIN + plugin, encoding="utf-8")
        extra = ["-p", "offering"]
    report = folder / "report.json"
    command = [
        "pytest",
        "--pyargs",
        "onnxplug_testkit",
        "-p",
        "no:cacheprovider",
        "-q",
        *extra,
        "--report",
        str(report),
        *arguments,
    ]
    program = f"import pytest, sys; sys.path.insert(0, {str(folder)!r}); sys.exit(pytest.main({command[1:]!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    data = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    return done.returncode, done.stdout + done.stderr, data


NEG = 'OPERATORS = {"Neg", "Relu"}\noffer("SmallExecutionProvider")\n'


def waiver(
    test: str, kind: str = "expected_failure", expires: datetime.date = TOMORROW, contract: str = CONTRACT
) -> str:
    return (
        f'[[waiver]]\ntest = "{test}"\nkind = "{kind}"\nreason = "known"\nlink = "https://example.org/1"\n'
        f'expires = {expires}\ncontract = "{contract}"\n'
    )


def test_inert_without_ep(tmp_path: Path) -> None:
    code, output, report = run(tmp_path)
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED, output
    assert not report


def test_memory_level(tmp_path: Path) -> None:
    code, output, report = run(tmp_path, "--ep", "ref", "--level", "memory", "--seed", "5")
    assert code == 0, output
    assert "conformant at level memory" in output and "seed 5" in output
    assert report["verdict"] == "conformant"
    assert report["distribution"]["name"] == "onnxplug-ep-reference" and report["distribution"]["record_sha256"]
    assert report["cells"] == []
    assert {t["status"] for t in report["tests"]} == {"passed", "unsupported"}


def test_kernels_of_a_small_provider(tmp_path: Path) -> None:
    code, output, report = run(tmp_path, "--ep", "SmallExecutionProvider", "--level", "kernels", plugin=NEG)
    assert code == 0, output
    assert report["verdict"] == "conformant"
    assert {c["op_type"] for c in report["cells"]} == {"Neg", "Relu"}
    assert all(c["status"] == "proven" and c["tests"] and c["oracles"] for c in report["cells"])


def test_a_trial_that_fails_tells_its_node(tmp_path: Path) -> None:
    wrong = "import onnxplug_testkit.kernels.trial as trial\n"
    wrong += "trial._Run._judge = lambda *_: trial.fail('kernels.values', 'another value')\n"
    plugin = "OPERATORS = {'Elu'}\noffer('SmallExecutionProvider')\n" + wrong
    ask = ("--ep", "SmallExecutionProvider", "--level", "kernels", "-k", "elu_example")
    code, output, _ = run(tmp_path, *ask, plugin=plugin)
    assert code == 1 and "kernels.values: another value; the node: Elu(float[3]; alpha=2.0)" in output, output


def test_claiming_nothing_fails(tmp_path: Path) -> None:
    nothing = 'OPERATORS = set()\noffer("SmallExecutionProvider")\n'
    code, output, report = run(tmp_path, "--ep", "SmallExecutionProvider", "--level", "kernels", plugin=nothing)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "contract, 0 cells" in output and report["verdict"] == "failed"
    code, output, _ = run(tmp_path, "--ep", "SmallExecutionProvider", "--level", "contract", plugin=nothing)
    assert code == 0, output


def test_a_profile_is_a_floor(tmp_path: Path) -> None:
    code, output, _ = run(
        tmp_path, "--ep", "SmallExecutionProvider", "--level", "kernels", "--profile", "elementwise", plugin=NEG
    )
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "profile elementwise-1 lacks" in output


def test_selecting_tests_is_partial(tmp_path: Path) -> None:
    code, output, report = run(tmp_path, "--ep", "ref", "--level", "memory", "-k", "alignment")
    assert code == PARTIAL, output
    assert report["verdict"] == "partial" and report["counts"]["not_selected"] > 10


def test_reports_in_several_forms(tmp_path: Path) -> None:
    wanted = [str(tmp_path / "out" / f"report.{ending}") for ending in ("html", "md", "xml", "svg")]
    given = [word for path in wanted for word in ("--report", path)]
    code, output, report = run(tmp_path, "--ep", "ref", "--level", "contract", *given)
    assert code == 0, output
    assert report["verdict"] == "conformant"
    assert all("ReferenceExecutionProvider" in Path(p).read_text(encoding="utf-8") for p in wanted[:3])
    assert "conformant" in Path(wanted[3]).read_text(encoding="utf-8")


def test_no_device(tmp_path: Path) -> None:
    absent = 'OPERATORS = {"Neg"}\noffer("SmallExecutionProvider", check=lambda: Unavailable("no such board", "plug one in"))\n'
    code, output, report = run(tmp_path, "--ep", "SmallExecutionProvider", plugin=absent)
    assert code == NOT_RUN, output
    assert report["verdict"] == "not_run" and "no such board" in report["not_run"]
    assert report["tests"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--ep", "nobody"),
        ("--ep", "ref", "--level", "high"),
        ("--ep", "ref", "--profile", "most"),
        ("--ep", "ref", "--report", "report.pdf"),
    ],
)
def test_what_is_unknown_is_a_usage_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, output, _ = run(tmp_path, *arguments)
    assert code == pytest.ExitCode.USAGE_ERROR, output


BROKEN = (
    'OPERATORS = {"Neg"}\n'
    "from onnxplug_ep_reference.memory import SimAllocator\n"
    "def forgiving(self, buffer, free=SimAllocator.free):\n"
    "    if buffer.handle.data is not None:\n"
    "        free(self, buffer)\n"
    "SimAllocator.free = forgiving\n"
    'offer("SmallExecutionProvider")\n'
)


def test_a_waived_failure_is_expected(tmp_path: Path) -> None:
    (tmp_path / "conformance.toml").write_text(waiver("memory.double_free"), encoding="utf-8")
    code, output, report = run(tmp_path, "--ep", "SmallExecutionProvider", "--level", "memory", plugin=BROKEN)
    assert code == 0, output
    assert report["verdict"] == "conformant with 1 waiver"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "accepted"),
        (waiver("memory.double_free", expires=datetime.date(2020, 1, 1)), "expired"),
        (waiver("memory.double_free", contract="77.0"), "77.0"),
        (waiver("memory.double_free", kind="unsupported"), "accepted"),
        (waiver("memory.double_free") + waiver("memory.stream_copies"), "is unsupported and does not fail although"),
        (waiver("memory.double_free") + waiver("memory.alignment", kind="unsupported"), "passes although"),
        (waiver("memory.double_free") + waiver("memory.alignment"), "drop the waiver"),
        (waiver("memory.double_free") + waiver("memory.no_such_test"), "matches no test"),
    ],
)
def test_a_waiver_that_does_not_hold_fails(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "conformance.toml").write_text(text, encoding="utf-8")
    code, output, report = run(tmp_path, "--ep", "SmallExecutionProvider", "--level", "memory", plugin=BROKEN)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert said in output and report["verdict"] == "failed"


@pytest.mark.parametrize(
    "text",
    [
        waiver("memory.*"),
        waiver("memory.double_free", kind="skip"),
        waiver("memory.double_free").replace("link", "url"),
        waiver("memory.double_free") * 2,
        waiver("memory.double_free", contract="0.1").replace('"0.1"', "0.1"),
        '[provider]\ncolour = "red"\n',
        '[provider]\nlimit_option = "no_such_limit"\n',
        '[provider.options]\ncolour = "red"\n',
        "[[wavier]]\n",
    ],
)
def test_settings_that_cannot_be_used_are_a_usage_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "conformance.toml").write_text(text, encoding="utf-8")
    code, output, _ = run(tmp_path, "--ep", "ref", "--level", "contract")
    assert code == pytest.ExitCode.USAGE_ERROR, output


def test_a_skip_that_names_no_capability_fails(tmp_path: Path) -> None:
    skipping = (
        'OPERATORS = {"Neg"}\noffer("SmallExecutionProvider")\n'
        "import pytest\nfrom onnxplug_testkit.check import Check\n"
        "Check.__call__ = lambda self, subject, seed=0: pytest.skip('not in the mood')\n"
    )
    code, output, report = run(tmp_path, "--ep", "SmallExecutionProvider", "--level", "contract", plugin=skipping)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert {t["status"] for t in report["tests"]} == {"failed"}


def test_parallel_runs_are_refused(tmp_path: Path) -> None:
    """With pytest-xdist each worker would judge a part."""
    (tmp_path / "parallel.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--numprocesses', type=int)\n", encoding="utf-8"
    )
    given = ("-p", "no:xdist", "-p", "parallel", "--ep", "reference", "--level", "contract")
    code, output, report = run(tmp_path, *given, "--numprocesses", "2")
    assert code == pytest.ExitCode.USAGE_ERROR and "does not run under pytest-xdist" in output and not report
    assert run(tmp_path, *given, "--numprocesses", "0")[0] == pytest.ExitCode.OK
