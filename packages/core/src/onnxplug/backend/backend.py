"""The backend class, with the names it has in onnxruntime."""

from __future__ import annotations

import os
import unittest
from typing import Any, NoReturn

from onnx import ModelProto, helper
from onnx.backend.base import Backend
from onnx.checker import check_model

from onnxplug.backend.backend_rep import OnnxRuntimeBackendRep, set_allowed
from onnxplug.session.environment import get_available_providers, get_device
from onnxplug.session.options import SessionOptions
from onnxplug.session.session import InferenceSession

ALLOWED = frozenset(
    {
        "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "execution_order",
        "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads", "log_severity_level",
        "log_verbosity_level", "logid", "use_deterministic_compute", "use_per_session_threads",
    }
)  # fmt: skip
"""Session options that callers may set: all but those that write files."""


class OnnxRuntimeBackend(Backend):
    """Models prepared on all available providers, without run-time fallback. Environment variable
    ``ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS`` lists providers to leave out, ``ALLOW_RELEASED_ONNX_OPSET_ONLY=0`` admits
    operator sets that onnx has not released."""

    allowReleasedOpsetsOnly = os.getenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "1") == "1"

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Whether the device is supported; the model is not looked at."""
        return cls.supports_device(get_device() if device is None else device)

    @classmethod
    def is_opset_supported(cls, model: ModelProto) -> tuple[bool, str]:
        """Whether all imported operator sets are released ones, and if not, why the test is skipped."""
        for imported in model.opset_import if cls.allowReleasedOpsetsOnly else ():
            domain = imported.domain or "ai.onnx"
            if (domain, imported.version) not in helper.OP_SET_ID_VERSION_MAP:
                return False, (
                    "Skipping this test as only released onnx opsets are supported. To run this test set env variable "
                    f"ALLOW_RELEASED_ONNX_OPSET_ONLY to 0. Got Domain '{domain}' version '{imported.version}'."
                )
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether an available provider drives such a device: CPU, GPU or CUDA."""
        device = "GPU" if device == "CUDA" else device
        return device in (get_device(), *get_device().split("-"))

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> OnnxRuntimeBackendRep:
        """A model ready to run, from a path, bytes, ModelProto, session, or what this function gave.

        RuntimeError for a device that is not supported and for session options that are not ``ALLOWED``, SkipTest for a
        ModelProto that imports operator sets onnx has not released.
        """
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        if not isinstance(model, str | bytes):
            serialized = model.SerializeToString()
            check_model(serialized)
            supported, reason = cls.is_opset_supported(model)
            if not supported:
                raise unittest.SkipTest(reason)
            return cls.prepare(serialized, device, **kwargs)
        options = SessionOptions()
        set_allowed(options, kwargs, ALLOWED)
        excluded = os.getenv("ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS", "").split(",")
        session = InferenceSession(model, options, [p for p in get_available_providers() if p not in excluded])
        session.disable_fallback()
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"Incompatible device expected '{device}', got '{get_device()}'")
        return OnnxRuntimeBackendRep(session)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **kwargs: Any) -> Any:
        """The outputs of a model; keywords go to ``prepare`` and to its result's ``run``."""
        return cls.prepare(model, device, **kwargs).run(inputs, **kwargs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str | None = None, outputs_info: Any = None, **kwargs: Any
    ) -> NoReturn:
        """NotImplementedError: a session runs models."""
        raise NotImplementedError("It is much more efficient to run a whole model than every node independently.")


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device
