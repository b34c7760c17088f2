"""A prepared model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onnx.backend.base import BackendRep

from onnxplug.session.options import RunOptions
from onnxplug.session.session import InferenceSession

ALLOWED = frozenset({"log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches"})
"""Run options that callers may set."""


class OnnxRuntimeBackendRep(BackendRep):
    """A session behind onnx's interface."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:  # type: ignore[override]  # onnxruntime gives a list
        """All outputs. A list holds one array for each input, by position; anything else is the only input.

        RuntimeError for a single value where the model has several inputs, and for run options that are not ``ALLOWED``.
        """
        options = RunOptions()
        set_allowed(options, kwargs, ALLOWED)
        names = [each.name for each in self._session.get_inputs()]
        if isinstance(inputs, list):
            return self._session.run(None, {name: inputs[at] for at, name in enumerate(names)}, options)
        if len(names) != 1:
            raise RuntimeError(f"Model expect {len(names)} inputs")
        return self._session.run(None, {names[0]: inputs}, options)


def set_allowed(options: Any, given: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Set attributes of options that are allowed, leave out those it does not have. RuntimeError for others."""
    for name, value in given.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            raise RuntimeError(
                f"{type(options).__name__} attribute '{name}' is not permitted via the backend API. Allowed attributes: "
                f"{', '.join(sorted(allowed))}"
            )
