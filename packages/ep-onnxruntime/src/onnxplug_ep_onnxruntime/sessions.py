"""onnxruntime's sessions on one of its providers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxplug.contract import EPFail, SessionContext, ValueView, element_of
from onnxplug.contract.types import ELEMENT_CODES
from onnxplug_ep_onnxruntime import library
from onnxplug_ep_onnxruntime.catalogue import Bridged
from onnxplug_ep_onnxruntime.device import plugin_library
from onnxplug_ep_onnxruntime.errors import text_of
from onnxplug_ep_onnxruntime.library import CPU
from onnxplug_ep_onnxruntime.options import BridgeOptions, OnnxRuntimeOptions

RECORD = "session.record_ep_graph_assignment_info"
_SPINNING = "session.intra_op.allow_spinning"
_FEW_BITS = "session.qdq_matmulnbits_accuracy_level"
"""How products with weights of few bits are computed: 1 in float32, onnxruntime's default of 4 with factors rounded to bytes."""
_WRONG_FUSIONS = {"LayerNormFusionL1", "LayerNormFusionL2"}
"""Passes that join nodes to an operator which computes something else: a fourth power for a square."""
_HANDED_ON = ("session.intra_op.", "session.qdq", "session.set_denormal_as_zero", "session.x64quantprecision", "mlas.")
"""Beginnings of the config entries of a session that hold for onnxruntime's too, beside those of the provider itself."""
_FATAL = 4
"""What fails is raised; onnxruntime is not to print it as well."""


@dataclass(frozen=True)
class Weight:
    """A constant's ``OrtValue`` under the attribute by which a session's options look for it."""

    _ortvalue: Any


class Maker:
    """Makes sessions on one provider, which ``ep`` names. RuntimeError for options that the provider refuses, EPFail where it does not
    come up."""

    def __init__(self, bridged: Bridged, options: BridgeOptions, context: SessionContext) -> None:
        self.module, self.ep, self._context, self._keys = library.native(), bridged.ep, context, bridged.keys
        self._level = options.graph_optimization_level
        self._devices: Sequence[Any] | None = None
        self._handed_on = options.handed_on()
        self.exact = isinstance(options, OnnxRuntimeOptions) and options.exact
        if isinstance(options, OnnxRuntimeOptions):
            self._handed_on = _object(options.ep_options)
            if options.library:
                self.ep, self._devices = self._of_library(options.library, options.ep)
            elif options.ep or options.ep_options:
                raise RuntimeError("options ep and ep_options are for a provider of a library: give library too")
        elif (path := plugin_library(bridged)) is not None:
            index = int(self._handed_on.pop("device_id", 0))
            self.ep, self._devices = self._of_library(path, self.ep)
            if index >= len(self._devices):
                raise RuntimeError(f"option device_id is {index}, {path} finds {len(self._devices)} devices")
            self._devices = [self._devices[index]]
        if not self.is_cpu:
            self._try()

    @property
    def is_cpu(self) -> bool:
        """Whether it is onnxruntime's CPU provider, which has everything that nobody else takes."""
        return self.ep == CPU

    def session(self, model: bytes, constants: Mapping[str, ValueView], exactly: bool = False) -> Any:
        """A native session on the provider, with onnxruntime's CPU provider for what is not taken. ``exactly``: the nodes as they are,
        whatever the level of optimization."""
        return self._made(model, constants, "disabled" if exactly else self._level, self._handed_on)

    def _made(self, model: bytes, constants: Mapping[str, ValueView], level: str, options: Mapping[str, str]) -> Any:
        settings = self.module.SessionOptions()
        settings.log_severity_level = _FATAL
        settings.intra_op_num_threads, settings.inter_op_num_threads = self._context.threads, 1
        name = "DISABLE_ALL" if level == "disabled" else f"ENABLE_{level.upper()}"
        settings.graph_optimization_level = getattr(self.module.GraphOptimizationLevel, f"ORT_{name}")
        if self.ep == "DmlExecutionProvider":
            settings.enable_mem_pattern = False  # which it demands
        preset = {_SPINNING: "0"} | ({_FEW_BITS: "1"} if self.exact else {})
        for key, value in {**preset, **self._context.config}.items():
            if key.startswith(_HANDED_ON) or (self._keys and key.startswith(self._keys)):
                settings.add_session_config_entry(key, value)
        if not self.is_cpu:
            settings.add_session_config_entry(RECORD, "1")
        if self._devices is not None:
            settings.add_provider_for_devices(self._devices, dict(options))
        held = {name: _ort_value(self.module, value) for name, value in constants.items()}
        if held:  # they are copied before the session is there
            settings.add_external_initializers(list(held), [Weight(value) for value, _ in held.values()])
        made = self.module.InferenceSession(settings, model, False, False)
        if self._devices is not None:
            made.initialize_session([], [], set())
        else:
            made.initialize_session([self.ep], [dict(options)], _WRONG_FUSIONS if self.exact else set())
        return made

    def _of_library(self, path: str, ep: str) -> tuple[str, Sequence[Any]]:
        """The provider of a library, by name where it has several, and its devices. Some are called what they are registered as."""
        found = library.plugin_devices(path, ep or Path(path).stem)
        names = sorted({device.ep_name for device in found})
        if not found:
            raise EPFail(f"{path} finds no device it can use")
        if ep not in names and (ep or len(names) > 1):
            raise RuntimeError(f"option ep is {ep!r}, the providers of {path} are {', '.join(names)}")
        return ep or names[0], [device for device in found if device.ep_name == (ep or names[0])]

    def _try(self) -> None:
        """Whether the provider comes up, tried once in a process: onnxruntime goes on without one that does not."""
        if not hasattr(self.module.InferenceSession, "get_provider_graph_assignment_info"):
            version = self.module.get_version_string()
            raise EPFail(
                f"onnxruntime {version} does not tell which nodes {self.ep} takes: pip install 'onnxruntime>=1.24'"
            )
        setting = self.ep, tuple(self._handed_on.items()), len(self._devices or ())
        if setting in _up:
            return
        from onnx import TensorProto, helper

        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "try", ends[:1], ends[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()
        why = self._why_down(model, self._handed_on)
        if why is None:
            _up.add(setting)
            return
        if self._handed_on and self._why_down(model, {}) is None:
            given = ", ".join(f"{key}={value}" for key, value in self._handed_on.items())
            raise RuntimeError(f"{self.ep} does not take its options {given}: {why}")
        raise EPFail(f"{self.ep} does not start: {why}")

    def _why_down(self, model: bytes, options: Mapping[str, str]) -> str | None:
        """Why the provider does not come up with these options, if it does not."""
        try:
            up = self.ep in self._made(model, {}, "disabled", options).get_providers()
        except Exception as error:
            return text_of(error)
        return None if up else "onnxruntime says why on stderr (a library that it needs, a driver)"


_up: set[Any] = set()
"""Providers, with their options, that came up in this process."""


def _object(text: str) -> dict[str, str]:
    """The options in a JSON object. RuntimeError for another text."""
    try:
        given = json.loads(text or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise RuntimeError(f'Failed to parse provider option "ep_options": {text!r} is not a JSON object')
    return {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}


def _ort_value(module: Any, value: ValueView) -> tuple[Any, np.ndarray]:
    """A constant as onnxruntime's value, which shows the array's memory and does not hold it."""
    read = value.view()
    assert read is not None and value.dtype is not None
    array = np.require(read, requirements="C")
    device = module.OrtDevice(module.OrtDevice.cpu(), module.OrtDevice.default_memory(), 0)
    if array.dtype.isbuiltin == 1:
        return module.OrtValue.ortvalue_from_numpy(array, device), array
    bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return module.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, ELEMENT_CODES[element_of(array.dtype)]), array
