"""Nodes that read or write by numbers of which only the device sees that they are out of range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from test_cuda_grouped import node as grouped

from onnxplug_kernel_text.nodes.grouped import LAST, PLACES, TOTAL

MS = "com.microsoft"
CULPRIT = "culprit"
RNG = np.random.default_rng


class Faulty(NamedTuple):
    """A node, its inputs, which of them is to be another one, and what is out of range in that."""

    op_type: str
    inputs: Sequence[np.ndarray | None]
    at: int
    bad: Any
    attributes: Mapping[str, Any] = {}
    domain: str = ""
    version: int = 21
    outputs: int = 1
    hosted: Sequence[int] = ()

    def feeds(self, *, good: bool) -> dict[str, np.ndarray]:
        """What a run is given."""
        given = list(self.inputs)
        if not good:
            given[self.at] = np.asarray(self.bad, np.asarray(given[self.at]).dtype)
        return {f"x{n}": x for n, x in enumerate(given) if x is not None and n not in self.hosted}

    def model(self) -> bytes:
        """The node alone, with inputs of any shape."""
        code = onnx.helper.np_dtype_to_tensor_dtype
        names = ["" if x is None else f"x{n}" for n, x in enumerate(self.inputs)]
        results = [f"y{n}" for n in range(self.outputs)]
        made = onnx.helper.make_node(self.op_type, names, results, CULPRIT, domain=self.domain, **self.attributes)
        told = [
            onnx.helper.make_tensor_value_info(f"x{n}", code(x.dtype), [None] * x.ndim)
            for n, x in enumerate(self.inputs)
            if x is not None and n not in self.hosted
        ]
        floats = [x.dtype for x in self.inputs if x is not None and x.dtype.kind in "fc"]
        answer = onnx.helper.make_tensor_value_info(results[0], code(floats[0]), None)
        constants = [onnx.numpy_helper.from_array(np.asarray(self.inputs[n]), f"x{n}") for n in self.hosted]
        graph = onnx.helper.make_graph([made], "g", told, [answer], constants)
        opsets = [onnx.helper.make_opsetid("", self.version), onnx.helper.make_opsetid(MS, 1)]
        data: bytes = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        return data


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(RNG(sum(shape)).standard_normal(shape).astype(dtype))


def recurrent(op: str, gates: int, dtype: Any, length: int) -> Faulty:
    """A layer of sequences whose lengths differ."""
    weights = [floats(1, gates * 4, n, dtype=dtype) / 4 for n in (3, 4)]
    given = [floats(5, 2, 3, dtype=dtype), *(w.astype(dtype) for w in weights), None, np.array([5, 2], np.int32)]
    return Faulty(op, given, 4, [length, 2], {"hidden_size": 4}, version=22)


def tables(quantized: bool) -> Faulty:
    """An embedding of words, places and kinds."""
    ids = np.array([[0, 3, 1], [2, 4, 0]], np.int32)
    shapes = [(5, 8), (3, 8), (2, 8), (8,), (8,)]
    if not quantized:
        given = [ids, ids % 2, *(floats(*shape) for shape in shapes)]
        return Faulty("EmbedLayerNormalization", given, 1, ids, {}, MS)
    held = [np.abs(floats(*shape) * 9).astype(np.uint8) for shape in shapes]
    scales, zeros = [np.float32([0.1])] * 5, [np.uint8([3])] * 5
    return Faulty(
        "QEmbedLayerNormalization", [ids, ids % 2, *held, None, *scales, *zeros], 0, ids - 1, {}, MS, outputs=2
    )


def caches(at: int, bad: Any) -> Faulty:
    """A step of a decoder, with rotation by places that are given."""
    found = grouped(2, 6, rotary=True, places=True)
    return Faulty(found.op_type, found.inputs[: PLACES + 1], at, bad, found.attributes, MS, outputs=3, hosted=(TOTAL,))


REGIONS = np.array([[0, 0, 3, 2], [1, 1, 3, 3]], np.float32)
LOSS = [floats(3, 4, 2), np.array([[0, 1], [3, 2], [1, 0]])]
FAULTS: Mapping[str, Callable[[], Faulty]] = {
    "Gather": lambda: Faulty("Gather", [floats(4, 3), np.array([1, -4])], 1, [1, 4]),
    "Gather below": lambda: Faulty("Gather", [floats(4, 3), np.array([[2]], np.int32)], 1, [[-4]], {"axis": 1}),
    "Gather of nothing": lambda: Faulty("Gather", [floats(4, 0), np.array([1, -4])], 1, [1, 4]),
    "Gather of wide elements": lambda: Faulty("Gather", [floats(4, 3, dtype=np.complex128), np.array([1])], 1, [-5]),
    "GatherElements": lambda: Faulty("GatherElements", [floats(4, 3), np.array([[1, -4]])], 1, [[1, 4]]),
    "GatherElements of wide elements": lambda: Faulty(
        "GatherElements", [floats(4, 3, dtype=np.complex128), np.array([[1, -4]])], 1, [[1, 4]]
    ),
    "GatherND": lambda: Faulty("GatherND", [floats(4, 3), np.array([[1, -3], [3, 2]])], 1, [[1, 3], [0, 0]]),
    "GatherND of wide elements": lambda: Faulty(
        "GatherND", [floats(4, 3, dtype=np.complex128), np.array([[1, -3], [3, 2]])], 1, [[1, 3], [0, 0]]
    ),
    "ScatterElements": lambda: Faulty("ScatterElements", [floats(4), np.array([1, -4]), floats(2)], 1, [1, 4]),
    "ScatterElements joined": lambda: Faulty(
        "ScatterElements", [floats(4), np.array([1, 1]), floats(2)], 1, [1, -5], {"reduction": "add"}
    ),
    "ScatterND": lambda: Faulty("ScatterND", [floats(4, 3), np.array([[1], [-4]]), floats(2, 3)], 1, [[1], [4]]),
    "TensorScatter": lambda: Faulty(
        "TensorScatter", [floats(2, 5, 3), floats(2, 2, 3), np.array([3, 0])], 2, [4, 0], version=24
    ),
    "ReverseSequence": lambda: Faulty("ReverseSequence", [floats(3, 2), np.array([3, 1])], 1, [4, 1]),
    "RoiAlign, image": lambda: Faulty("RoiAlign", [floats(2, 3, 5, 5), REGIONS, np.array([1, 0])], 2, [1, 2]),
    "RoiAlign, region": lambda: Faulty(
        "RoiAlign", [floats(2, 3, 5, 5), REGIONS, np.array([1, 0])], 1, [[0, 0, np.inf, 2], [1, 1, 3, 3]]
    ),
    "NegativeLogLikelihoodLoss": lambda: Faulty("NegativeLogLikelihoodLoss", LOSS, 1, [[0, 1], [4, 2], [1, 0]]),
    "SoftmaxCrossEntropyLoss": lambda: Faulty(
        "SoftmaxCrossEntropyLoss", LOSS, 1, [[0, 1], [-5, 2], [1, 0]], {"ignore_index": 2}
    ),
    "EmbedLayerNormalization": lambda: tables(False),
    "QEmbedLayerNormalization": lambda: tables(True),
    "RotaryEmbedding": lambda: Faulty(
        "RotaryEmbedding", [floats(1, 2, 2, 8), floats(6, 4), floats(6, 4), np.array([[5, 0]])], 3, [[6, 0]], version=23
    ),
    "RotaryEmbedding of com.microsoft": lambda: Faulty(
        "RotaryEmbedding", [floats(1, 2, 2, 8), np.array([[5, 0]]), floats(6, 4), floats(6, 4)], 1, [[5, -1]], {}, MS
    ),
    "MRotaryEmbedding": lambda: Faulty(
        "MRotaryEmbedding", [floats(1, 2, 2, 8), np.array([[[5, 0]]] * 3), floats(6, 4), floats(6, 4)], 1, [[[6, 0]]] * 3,
        {"mrope_section": [2, 1, 1]}, MS,
    ),
    "GroupQueryAttention, lengths": lambda: caches(LAST, [99, 3]),
    "GroupQueryAttention, places": lambda: caches(PLACES, [[5, 6], [4, 999]]),
    "CropAndResize": lambda: Faulty(
        "CropAndResize", [floats(2, 3, 5, 5), REGIONS / 5, np.array([1, 0], np.int32), np.array([2, 2], np.int32)], 2,
        [1, 2], {}, MS, hosted=(3,),
    ),
    "RNN": lambda: recurrent("RNN", 1, np.float32, 6),
    "GRU": lambda: recurrent("GRU", 3, np.float32, -1),
    "LSTM": lambda: recurrent("LSTM", 4, np.float64, 6),
    "LSTM of halves": lambda: recurrent("LSTM", 4, np.float16, 6),
}  # fmt: skip
"""What an index beyond a tensor is an error of."""
