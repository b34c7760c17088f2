"""Models for the tests of the OpenVINO provider, and sessions on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import numpy_helper, parser

import onnxplug as ort

NAME, CPU = "OpenVINOExecutionProvider", "CPUExecutionProvider"


def model(text: str, version: int = 17, **constants: np.ndarray) -> bytes:
    """A model from the text of its graph, with these initializers."""
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["": {version}]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return bytes(proto.SerializeToString())


def open_session(
    source: bytes | str, options: Mapping[str, str] | None = None, **settings: Any
) -> ort.InferenceSession:
    """A session on OpenVINO with the CPU provider behind it; ``settings`` are attributes of its options, or config entries (names with
    ``__`` for dots)."""
    made = ort.SessionOptions()
    for name, value in settings.items():
        if "__" in name:
            made.add_session_config_entry(name.replace("__", "."), value)
        else:
            setattr(made, name, value)
    return ort.InferenceSession(source, made, providers=[(NAME, dict(options or {})), CPU])


def owners(session: ort.InferenceSession) -> set[str]:
    """The providers that have nodes."""
    return set(session.placement().values())


def reasons(session: ort.InferenceSession) -> dict[str, str]:
    """By operator why OpenVINO has it not."""
    nodes = session.explain().to_dict()["nodes"]
    return {node["op_type"]: node["reasons"][NAME] for node in nodes if NAME in node["reasons"]}
