"""Messages, and the module that carries them, which a session imports when somebody may want one."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import onnx.parser
import pytest

from onnxplug.contract.logs import DEBUG, ERROR, INFO, WARNING, Log
from onnxplug.session.severity import SessionLog, is_severity

MODEL = "agraph (float[4] x) => (float[4] y) { y = Relu(x) }"
LEFT = (
    "logging",
    "pathlib",
    "onnxplug.session.ortvalue",
    "onnxplug.session.iobinding",
    "onnxplug.run.control",
    "onnxplug.load.model",
)
"""What a session whose graph is recalled has no use for."""


def _run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_recalled_session_imports_no_more_than_it_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ONNXPLUG_CACHE", raising=False)
    path = tmp_path / "model.onnx"
    graph = onnx.parser.parse_graph(MODEL)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8), path)
    program = (
        "import sys, numpy, onnxplug; before = set(sys.modules)\n"
        "session = onnxplug.InferenceSession(open(sys.argv[1], 'rb').read(), providers=['CPUExecutionProvider'])\n"
        "session.run(None, {'x': numpy.ones(4, 'f')})\n"
        "if len(sys.argv) > 2: assert not (found := set(sys.argv[2:]) & (set(sys.modules) - before)), found"
    )
    _run(program, str(path))
    _run(program, str(path), *LEFT)


def test_the_first_message_has_the_sessions_form_whoever_writes_it() -> None:
    told = _run(
        "import sys\n"
        "from onnxplug.contract.logs import Log\n"
        "from onnxplug.session.severity import SessionLog\n"
        "session, log = SessionLog(-1, 'mine'), Log('onnxplug.test')\n"
        "log.info('unheard'); session.debug('unheard'); assert not session.isEnabledFor(20)\n"
        "assert 'logging' not in sys.modules\n"
        "log.warning('first %d', 1); session.error('second')"
    )
    first, second = told.splitlines()
    assert "[W:onnxplug:Default, <string>:7 <module>] first 1" in first
    assert "[E:onnxplug:mine, <string>:7 <module>] second" in second


def test_a_log_is_its_logger(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("onnxplug.of_a_test")
    assert log.name == "onnxplug.of_a_test" and log.logger is logging.getLogger("onnxplug.of_a_test")
    with caplog.at_level(logging.DEBUG, "onnxplug.of_a_test"):
        log.debug("a %s", "b")
        log.warning("c", exc_info=ValueError("d"))
        assert log.isEnabledFor(DEBUG)
    assert not log.isEnabledFor(DEBUG)
    assert [(r.levelno, r.getMessage(), r.filename) for r in caplog.records] == [
        (DEBUG, "a b", "test_logs.py"),
        (WARNING, "c", "test_logs.py"),
    ]
    with pytest.raises(AttributeError):
        _ = log._nothing


@pytest.mark.parametrize("severity", range(5))
def test_a_session_tells_from_its_severity_up(severity: int) -> None:
    log = SessionLog(severity, "")
    assert [log.isEnabledFor(level) for level in (DEBUG, INFO, WARNING, ERROR)] == [severity <= n for n in range(4)]
    assert is_severity(severity) and not is_severity(5)
