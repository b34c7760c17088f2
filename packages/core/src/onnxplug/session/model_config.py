"""Session options that a model brings along: metadata ``ort_config``, read where environment variable
``ORT_LOAD_CONFIG_FROM_MODEL`` is 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from onnxplug.session.enums import ExecutionMode, GraphOptimizationLevel
from onnxplug.session.options import SessionOptions

KEY = "ort_config"
_KINDS: Mapping[str, Any] = {
    "intra_op_num_threads": int, "inter_op_num_threads": int, "enable_profiling": bool,
    "execution_mode": ExecutionMode, "graph_optimization_level": GraphOptimizationLevel,
}  # fmt: skip


def configured(proto: Any, given: SessionOptions) -> SessionOptions:
    """The options a model brings, in place of all that were given; these where it brings none. RuntimeError for what cannot
    be read."""
    text = next((p.value for p in proto.metadata_props if p.key == KEY), None)
    if text is None:
        return given
    try:
        config = json.loads(text)
    except ValueError as error:
        raise _failure(f"Json stored in the `{KEY}` key cannot be parsed. Error message: {error}") from None
    made = SessionOptions()
    settings = config.get("session_options") if isinstance(config, dict) else None
    for name, value in (settings if isinstance(settings, dict) else {}).items():
        if name in _KINDS:
            setattr(made, name, _setting(name, value))
    return made


def _setting(name: str, value: Any) -> Any:
    if type(value) is not int:
        raise _failure(f"{name} option in the model file must be an integer")
    kind = _KINDS[name]
    if kind is int:
        return value
    if kind is bool and value not in (0, 1):
        raise _failure(f"Unsupported value for {name} option: {value}")
    if kind is not bool and value not in [member.value for member in kind]:
        raise _failure(f"Unsupported {name} value in ORT config: {value}")
    return kind(value)


def _failure(text: str) -> RuntimeError:
    return RuntimeError(
        f"Could not finalize session options while constructing the inference session. Error Message: {text}"
    )
