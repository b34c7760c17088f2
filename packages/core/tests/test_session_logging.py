"""Messages of sessions and of the process: their form, their severities, and the callback that is told of them, as onnxruntime has them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from core_graphs import plain_program
from onnx import TensorProto, helper, parser

import onnxplug
from onnxplug.session import logging as session_logging
from onnxplug.session.options import SessionOptions


def test_log_lines_have_onnxruntimes_form(capsys: pytest.CaptureFixture[str]) -> None:
    options = SessionOptions()
    with plain_program():
        options.add_session_config_entry("mm", "1")
        options.add_session_config_entry("mm", "2")
        session_logging.session_logger(logid="mine").warning("tell %s", "me")
        session_logging.session_logger().warning("and %s", "me")
    first, second, third = capsys.readouterr().err.splitlines()
    assert "[W:onnxplug:Default, settings.py:" in first
    assert first.endswith("] Config with key [mm] already exists with value [1]. It will be overwritten")
    assert "[W:onnxplug:mine, test_session_logging.py:" in second and second.endswith("] tell me")
    assert "[W:onnxplug:, test_session_logging.py:" in third


def test_a_session_tells_of_its_creation(ort: Any, capfd: pytest.CaptureFixture[str]) -> None:
    path = importlib.import_module(f"{ort.__name__}.datasets").get_example("sigmoid.onnx")
    for level, times in ((1, 1), (2, 0)):
        options = ort.SessionOptions()
        options.log_severity_level, options.logid = level, "mine"
        with plain_program():
            ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        lines = [line for line in capfd.readouterr().err.splitlines() if f"[I:{ort.__name__}:mine, " in line]
        for text in ("Initializing session.", "Session successfully initialized."):
            assert sum(line.endswith(f"] {text}") for line in lines) == times


def test_severities(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_program():
        onnxplug.set_default_logger_severity(3)
        session_logging.process_logger().warning("lost")
        session_logging.session_logger().warning("lost")
        session_logging.session_logger(0).debug("verbose session")
        session_logging.session_logger(4).error("lost")
    assert [line.split("] ")[-1] for line in capsys.readouterr().err.splitlines()] == ["verbose session"]


def test_records_go_to_the_applications_handlers_alone(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    session_logging.session_logger(logid="s").error("once")
    assert [record.message for record in caplog.records] == ["once"] and capsys.readouterr().err == ""


@pytest.fixture
def told(ort: Any) -> Iterator[list[tuple[Any, ...]]]:
    """What a callback is told, of messages and of verbose ones."""
    if not hasattr(ort, "set_default_logger_callback"):
        pytest.skip(f"onnxruntime {ort.__version__} gives messages to no callback")
    messages: list[tuple[Any, ...]] = []
    ort.set_default_logger_callback(lambda *message: messages.append(message), 2)
    yield messages
    ort.set_default_logger_callback(None)
    ort.set_default_logger_severity(2)


def test_messages_go_to_a_callback(ort: Any, told: list[tuple[Any, ...]], capfd: pytest.CaptureFixture[str]) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("mm", "1")
    options.add_session_config_entry("mm", "2")
    ((severity, category, logid, where, text),) = told
    assert (severity, category, logid) == (2, ort.__name__, "Default") and ":" in where
    assert text == "Config with key [mm] already exists with value [1]. It will be overwritten"
    ort.set_default_logger_callback(None)
    with plain_program():
        options.add_session_config_entry("mm", "3")
    assert len(told) == 1 and "already exists with value [2]" in capfd.readouterr().err


def test_a_callbacks_severity_is_the_processes(ort: Any, told: list[tuple[Any, ...]]) -> None:
    ort.set_default_logger_callback(lambda *message: told.append(message), severity=3)
    options = ort.SessionOptions()
    for _ in range(2):
        options.add_session_config_entry("mm", "1")
    assert not told


def test_what_a_callback_raises_and_logs_itself(
    ort: Any, told: list[tuple[Any, ...]], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unraised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    options = ort.SessionOptions()
    options.add_session_config_entry("mm", "1")

    def callback(*message: Any) -> None:
        told.append(message)
        if len(told) == 1:
            options.add_session_config_entry("mm", "from the callback")
        else:
            raise ValueError("mine")

    ort.set_default_logger_callback(callback)
    with plain_program():
        options.add_session_config_entry("mm", "2")
        options.add_session_config_entry("mm", "3")
    assert len(told) == 2 and [str(each.exc_value) for each in unraised] == ["mine"]
    assert capfd.readouterr().err.count("already exists") == 2


def test_callbacks_are_checked(ort: Any, told: list[tuple[Any, ...]]) -> None:
    with pytest.raises(RuntimeError, match="callback must be a callable"):
        ort.set_default_logger_callback(5)
    for given in ((print, 7), (None, 7), (print, -1)):
        with pytest.raises(
            RuntimeError, match=r"Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal"
        ):
            ort.set_default_logger_callback(*given)
    for wrong in (1.0, "1"):
        with pytest.raises(TypeError):
            ort.set_default_logger_callback(print, wrong)


def test_default_severity_is_checked(ort: Any) -> None:
    for severity in (-1, 5):
        with pytest.raises(
            RuntimeError, match=r"Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal"
        ):
            ort.set_default_logger_severity(severity)
    with pytest.raises(TypeError):
        ort.set_default_logger_severity("2")
    ort.set_default_logger_severity(2)


ADD = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
UNUSED = """g (float[2] x, bool b) => (float[2] y) <float[2] u = {1, 2}> {
    c = Constant <value_floats = [1.0]> ()
    y = If (b) <then_branch = t () => (float[2] p) <float[2] v = {1, 2}> { p = Neg(x) },
                else_branch = e () => (float[2] q) { q = Sin(x) }>
}"""
TWICE = (
    "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { w = Constant <value_floats = [3.0, 4.0]> () y = Add(x, w) }"
)
REMOVED = "Removing initializer '{}'. It is not used by any node and should be removed from the model."
OVERRIDABLE = "Initializer w appears in graph inputs and will not be treated as constant value/weight. This may prevent some of the graph"


@pytest.mark.parametrize(
    ("text", "ir", "also_inputs", "remarks"),
    [
        (ADD, 8, [], []),
        (ADD, 8, ["w"], [OVERRIDABLE]),
        (ADD, 3, ["w"], []),
        (UNUSED, 8, [], [REMOVED.format(name) for name in "ucv"]),
        (TWICE, 8, [], ["Duplicate initializer (dense, sparse or ConstantNode): 'w' the model will use the latest"]),
    ],
)
def test_remarks_on_constants(
    ort: Any, text: str, ir: int, also_inputs: list[str], remarks: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    made = parser.parse_model(f'<ir_version: {ir}, opset_import: ["": 17]> {text}')
    made.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in also_inputs)
    ort.set_default_logger_severity(2)
    with plain_program():
        ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    told = capfd.readouterr().err
    assert all(told.count(remark) == 1 for remark in remarks)
    if ort is onnxplug or text is not TWICE:  # which onnxruntime takes for an input of the graph
        assert told.count("[W:") == len(remarks)
