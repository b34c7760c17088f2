"""What callers give a session, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.session.options import RunOptions, SessionOptions
from onnxplug.session.severity import is_severity

GRAPH_ID = "gpu_graph_id"


def model_source(path_or_bytes: Any) -> str | bytes:
    """A model's path or bytes. TypeError for what is neither, nor a ModelProto."""
    if isinstance(path_or_bytes, bytes):
        return path_or_bytes
    if isinstance(path_or_bytes, str | os.PathLike):
        path = os.fspath(path_or_bytes)
        if not path:
            raise TypeError("Unable to load a model from an empty path")
        return os.fsdecode(path)
    serialize = getattr(path_or_bytes, "SerializeToString", None)
    if serialize is not None and type(path_or_bytes).__name__ == "ModelProto":
        return bytes(serialize())
    raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")


def session_options(given: Any) -> SessionOptions:
    """The session's own copy. TypeError for another type."""
    if not given:
        return SessionOptions()
    if not isinstance(given, SessionOptions):
        raise TypeError(
            f"InferenceSession(): incompatible constructor arguments: sess_options must be SessionOptions, got {type(given).__name__}"
        )
    return given._copy()


def check_run_options(options: Any) -> None:
    """TypeError for another type, Fail for a severity there is not."""
    if options is None:
        return
    if not isinstance(options, RunOptions):
        raise TypeError(
            f"run(): incompatible function arguments: run_options must be RunOptions, got {type(options).__name__}"
        )
    if not is_severity(options.log_severity_level):
        raise Fail(
            "Invalid run log severity level. Not a valid onnxruntime::logging::Severity value: "
            f"{options.log_severity_level}"
        )


def recording_id(options: RunOptions) -> int | None:
    """The recording of device work that a run's options ask for, None for -1, which asks for none. InvalidArgument for what is no
    integer of 32 bits."""
    text = options._config_entries.get(GRAPH_ID, "") or "0"
    found = re.fullmatch("(-?)0*([0-9]{1,10})", text)
    number = int(found[1] + found[2]) if found else 2**31
    if not -(2**31) <= number < 2**31:
        raise InvalidArgument(f"Failed to parse the cuda graph annotation id: {text} ('{GRAPH_ID}')")
    return None if number == -1 else number


def with_adapters(feed: Mapping[str, Any], options: Any) -> Mapping[str, Any]:
    """The feed and the parameters of active adapters, which win as in onnxruntime."""
    for adapter in getattr(options, "_adapters", ()):
        feed = {**feed, **adapter._parameters}
    return feed
