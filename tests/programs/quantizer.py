"""Prepares a model for a quantizer and quantizes it, its weights alone and with measured ranges, with the tools of onnxruntime.

python quantizer.py MODEL
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class Samples(CalibrationDataReader):
    """Four batches of noise."""

    def __init__(self) -> None:
        generator = np.random.default_rng(1)
        self._batches = iter([{"x": generator.standard_normal((8, 16)).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


def told(path: Path) -> dict[str, object]:
    """The operators of a model, and what it gives for one batch."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.random.default_rng(2).standard_normal((3, 16)).astype(np.float32)})
    operators = Counter(node.op_type for node in onnx.load(path).graph.node)
    return {"operators": dict(sorted(operators.items())), "y": np.round(y.astype(float), 3).tolist()}


def main(source: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prepared, dynamic, static = (Path(folder, f"{name}.onnx") for name in ("prepared", "dynamic", "static"))
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_dynamic(prepared, dynamic, weight_type=QuantType.QInt8)
        quantize_static(prepared, static, Samples(), quant_format=QuantFormat.QDQ, per_channel=True)
        print(json.dumps({path.stem: told(path) for path in (prepared, dynamic, static)}))


if __name__ == "__main__":
    main(sys.argv[1])
