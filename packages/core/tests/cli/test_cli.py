"""The console program: what it prints, exit codes, JSON, terminals, in process and through ``python -m onnxplug``."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_models import Cli, error_of

import onnxplug
from onnxplug import __version__
from onnxplug.cli import main
from onnxplug.session import progress, session

# the front


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version") == (0, f"onnxplug {__version__}\n", "")
    code, out, _ = cli("--help")
    assert code == 0
    assert "exit codes:" in out
    assert all(command in out for command in ("providers", "doctor", "explain", "run"))
    code, out, _ = cli("run", "--help")
    assert code == 0
    assert "exit codes:" in out


def test_the_front_imports_nothing_heavy() -> None:
    script = (
        "import sys; from onnxplug.cli import main; main(['--help'])\n"
        "heavy = {'numpy', 'onnx', 'rich', 'pluggy', 'onnxplug.session', 'onnxplug.contract'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["walk"],
        ["run"],
        ["explain", "m.onnx", "--what"],
        ["run", "m.onnx", "--repeat", "0"],
        ["run", "m.onnx", "--warmup", "-1"],
        ["run", "m.onnx", "--seed", "-1"],
        ["run", "m.onnx", "--dim", "N"],
        ["run", "m.onnx", "--providers", "cpu,,reference"],
        ["run", "m.onnx", "--option", "threads=4"],
    ],
)
def test_usage_errors(cli: Cli, arguments: list[str]) -> None:
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("onnxplug: UsageError: ")
    assert "--help" in err.splitlines()[1]
    code, error = error_of(cli(*arguments, "--json"))
    assert (code, error["type"]) == (2, "UsageError")


def test_an_error_is_two_lines_without_traceback(cli: Cli) -> None:
    code, out, err = cli("run", "missing.onnx")
    assert (code, out) == (1, "")
    first, second = err.splitlines()
    assert first.startswith("onnxplug: NoSuchFile: ")
    assert "missing.onnx" in first
    assert second.startswith("  next: ")
    assert "Traceback" in cli("run", "missing.onnx", "--traceback")[2]


def test_names_cannot_steer_the_terminal(cli: Cli) -> None:
    assert "\x1b" not in cli("run", "\x1b[2Jmissing.onnx")[2]


def test_interruption(cli: Cli, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxplug.session.session import InferenceSession

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(InferenceSession, "run", interrupt)
    code, out, err = cli("run", model)
    assert (code, out) == (130, "")
    assert "interrupted" in err


def test_what_plugins_print_stays_out_of_the_json(cli: Cli, offer: Callable[..., None]) -> None:
    offer(devices=lambda: print("hello") or [])
    code, out, err = cli("providers", "--json")
    assert code == 0
    json.loads(out)
    assert "hello" in err


# terminals


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_colours_on_a_terminal(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for no_color, green, bar in (("", True, "█"), ("1", False, "#")):
        monkeypatch.setenv("NO_COLOR", no_color)
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        assert main(["explain", model]) == 0
        assert ("\x1b[32m" in screen.getvalue()) is green
        assert bar * 60 in screen.getvalue()


def wait_for(screen: Terminal, text: str, seconds: float) -> None:
    """Until a text is on the screen, or for some seconds."""
    end = time.monotonic() + seconds
    while text not in screen.getvalue() and time.monotonic() < end:
        time.sleep(0.005)


def test_progress_shows_only_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for patience, hidden, shown in ((0.01, False, True), (0.01, True, False), (60, False, False)):
        monkeypatch.setattr(progress, "_PATIENCE", patience)
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        with progress.progress("waiting", 2, hidden) as advance:
            wait_for(screen, "waiting", 60 if shown else 0.1)
            advance()
        assert ("waiting" in screen.getvalue()) is shown


def test_a_session_shows_its_creation_where_it_was_asked_to(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)

    def as_wanted(entry: str | None, wanted: bool) -> bool:
        screen, options = Terminal(), onnxplug.SessionOptions()
        monkeypatch.setattr(sys, "stderr", screen)
        slow = [lambda **about: wait_for(screen, "loading the model", 60 if wanted else 0.05)]
        monkeypatch.setattr(session, "observers_for", lambda hook: slow)
        if entry is not None:
            options.add_session_config_entry("session.show_progress", entry)
        onnxplug.InferenceSession(model, options, ["CPUExecutionProvider"])
        return ("loading the model" in screen.getvalue()) is wanted

    assert as_wanted(None, False) and as_wanted("0", False) and as_wanted("1", True)
    monkeypatch.setenv("ONNXPLUG_PROGRESS", "1")
    assert as_wanted(None, True) and as_wanted("0", False)


# as a program


def program(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "onnxplug", *arguments], capture_output=True, text=True, **more)


def test_as_a_program(model: str) -> None:
    assert program("--version").stdout == f"onnxplug {__version__}\n"
    done = program("run", model, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"][0]["shape"] == [1, 3]
    assert program("run", "missing.onnx").returncode == 1
    assert program("run").returncode == 2
    assert program("run", model, "--providers", "cuda").returncode == 3


def test_a_console_that_knows_ascii_only(model: str) -> None:
    done = program("run", model, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pipe")
def test_a_reader_that_leaves_early(model: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "onnxplug", "explain", model], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_that_cannot_be_written(model: str) -> None:
    for unbuffered, flags in (("", []), ("1", []), ("1", ["--json"])):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "onnxplug", "explain", model, *flags]
            variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=variables)
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith("onnxplug: cannot write to standard output: ")


@pytest.mark.parametrize(("closed", "code"), [(1, 1), (2, 0)])
def test_a_stream_that_is_closed(model: str, closed: int, code: int) -> None:
    """As by ``>&-``: Python has no such stream then."""
    program = f"import os; os.close({closed}); os.execv({sys.executable!r}, {[sys.executable, '-m', 'onnxplug', 'run', model]!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stderr == ("onnxplug: cannot write to standard output: it is closed\n" if closed == 1 else "")
    assert (model in done.stdout) == (closed == 2)


def test_the_help_of_the_command_is_named(cli: Cli, model: str) -> None:
    code, _, err = cli("run", model, "--runs", "3")
    assert (code, err) == (2, "onnxplug: UsageError: unrecognized arguments: --runs 3\n  next: onnxplug run --help\n")
