"""OpenVINO's properties, as options and the session want them."""

from __future__ import annotations

import json
from pathlib import Path

from onnxplug.contract import SessionContext
from onnxplug_ep_openvino.options import OpenVINOOptions


def properties(options: OpenVINOOptions, context: SessionContext) -> dict[str, str]:
    """What a model is compiled with. RuntimeError for a ``load_config`` that cannot be read."""
    device = options.device_type.upper().partition(".")[0]
    made = {"NUM_STREAMS": str(options.num_streams), "PERFORMANCE_HINT": "LATENCY"}
    if options.precision == "ACCURACY":
        made["EXECUTION_MODE_HINT"] = "ACCURACY"
    elif options.precision or device != "NPU":
        made["INFERENCE_PRECISION_HINT"] = "f16" if options.precision == "FP16" else "f32"
    if device == "CPU":
        made["INFERENCE_NUM_THREADS"] = str(options.num_of_threads or context.threads)
        made["ENABLE_CPU_PINNING"] = "NO"  # it would bind the caller's thread too
        made["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "0"  # activations stay as exact as they are
    return made | _configured(options.load_config, device)


def _configured(path: str, device: str) -> dict[str, str]:
    """The properties that a file has for the device."""
    if not path:
        return {}
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RuntimeError(f'provider option "load_config": {path}: {error}') from error
    if not isinstance(found, dict) or not all(isinstance(given, dict) for given in found.values()):
        raise RuntimeError(f'provider option "load_config": {path} is not an object of objects, one for each device')
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in found.get(device, {}).items()}
