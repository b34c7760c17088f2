"""The kit's own structures of ai.onnx: nodes that ONNX's backend data lacks, or has in newer versions only with another meaning.

Values are only examples of shape and range; the schema of ``version`` is the one they are written for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import GONE, I32, U8, F, N, OwnNode, bytes_of, ints, node, ramp, scalar, waves


def _consumed(version: int, flags: list[int]) -> dict[str, Any]:
    """Version 1 of some operators has a memory hint that must be there."""
    return {"consumed_inputs": flags} if version == 1 else {}


def standard_nodes() -> Iterator[OwnNode]:
    """Structures of ai.onnx."""
    yield from _old_versions()
    yield from _sequences_and_optionals()
    yield from _random()
    yield from _normalization()
    yield from _others()


def _old_versions() -> Iterator[OwnNode]:
    image, channels = (ramp(1, 3, 4, 4), F), [(ramp(3, low=0.5, high=1.5), F)] * 4
    for version in (1, 6):
        yield node(
            "BatchNormalization",
            version,
            [image, *channels],
            [F],
            is_test=1,
            **_consumed(version, [0, 0, 0, 1, 1]),
        )
    for version in (7, 9):
        yield node("BatchNormalization", version, [image, *channels], [F])
    yield node("Pad", 1, [(ramp(2, 3), F)], [F], paddings=[0, 1, 2, 3], mode="constant", value=1.5)
    yield node("Pad", 2, [(ramp(2, 3), F)], [F], pads=[0, 1, 2, 3], mode="edge")
    yield node("TopK", 1, [(ramp(3, 5), F)], [F, N], k=2, axis=1)
    yield node("Upsample", 1, [(ramp(1, 1, 2, 2), F)], [F], width_scale=2.0, height_scale=2.0, mode="nearest")
    yield node("Upsample", 7, [(ramp(1, 1, 2, 2), F)], [F], scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")
    yield node("LpPool", 1, [image], [F], kernel_shape=[2, 2], p=2.0)
    yield node("Reshape", 1, [(ramp(2, 6), F)], [F], shape=[3, -1])
    yield node("Concat", 1, [(ramp(2, 3), F), (ramp(2, 3), F)], [F], axis=1)
    yield node("Softmax", 1, [(ramp(2, 3, 4), F)], [F], axis=1)
    yield node("Split", 1, [(ramp(6, 2), F)], [F, F], axis=0, split=[2, 4])
    yield node("Squeeze", 1, [(ramp(1, 3, 1, 2), F)], [F], axes=[0, 2])
    yield node("Clip", 1, [(ramp(3, 4), F)], [F], min=-1.0, max=1.0)
    yield node("Cast", 1, [(ramp(3, 4), F)], ["tensor(int32)"], to="INT32")
    yield node("Gemm", 1, [(ramp(2, 3), F), (ramp(3, 4), F), (ramp(2, 4), F)], [F])
    yield node("PRelu", 1, [(ramp(2, 3, 4), F), (ramp(3), F)], [F], until=6)
    yield node("Tile", 1, [(ramp(2, 3), F), (np.array(2, np.float32), F), (np.array(1, np.float32), F)], [F])
    yield node("AveragePool", 1, [image], [F], kernel_shape=[2, 2], strides=[2, 2])
    yield node("OneHot", 9, [(ints(0, 2, 1), N), (ints(3), N), (np.array([2, 5], np.float32), F)], [F])
    yield node(
        "GridSample", 16, [(ramp(1, 1, 4, 4), F), (ramp(1, 3, 3, 2, low=-1, high=1), F)], [F], mode="bilinear", until=19
    )
    for version in (16, 20):
        grid = (waves(1, 3, 3, 2, low=-1.2, high=1.2), F)
        yield node("GridSample", version, [(ramp(1, 1, 4, 4), F), grid], [F], mode="nearest")
    yield node("Resize", 10, [(ramp(1, 1, 2, 2), F), (np.array([1, 1, 2, 2], np.float32), F)], [F], mode="nearest")
    yield node("Dropout", 10, [(ramp(3, 4), F)], [F, "tensor(bool)"])
    for version in (1, 6):
        yield node("Dropout", version, [(ramp(3, 4), F)], [F], is_test=1, **_consumed(version, [0]))


def _sequences_and_optionals() -> Iterator[OwnNode]:
    x, items = ramp(2, 3), [ramp(2, 3), ramp(2, 3), ramp(2, 3)]
    sequence = f"seq({F})"
    for text, value in ((F, x), (sequence, items)):
        yield node("Optional", 15, [(value, text)], [f"optional({text})"])
        for held in (text, f"optional({text})"):
            version = 18 if held == text else 15
            yield node("OptionalGetElement", version, [(value, held)], [text])
            yield node("OptionalHasElement", version, [(value, held)], ["tensor(bool)"])
    for version, text, value in (
        (14, sequence, items),
        (16, f"optional({F})", x),
        (16, f"optional({sequence})", items),
    ):
        yield node("Identity", version, [(value, text)], [text])
    yield node("SequenceConstruct", 11, [(x, F), (x, F)], [sequence])
    yield node("SequenceEmpty", 11, [], [sequence], dtype=1)
    yield node("SequenceAt", 11, [(items, sequence), (np.array(1, np.int64), N)], [F])
    yield node("SequenceErase", 11, [(items, sequence), (np.array(1, np.int64), N)], [sequence])
    yield node("SequenceInsert", 11, [(items, sequence), (x, F), (np.array(1, np.int64), N)], [sequence])
    yield node("SequenceLength", 11, [(items, sequence)], [N])
    yield node("ConcatFromSequence", 11, [(items, sequence)], [F], axis=1)
    for version in (11, 24):
        yield node("SplitToSequence", version, [(ramp(6, 2), F), (ints(2, 4), N)], [sequence], axis=0)


def _random() -> Iterator[OwnNode]:
    for name in ("RandomNormal", "RandomUniform"):
        yield node(name, 1, [], [F], shape=[3, 4], seed=7.0)
        yield node(f"{name}Like", 1, [(ramp(3, 4), F)], [F], seed=7.0)
        yield node(f"{name}Like", 1, [(bytes_of(np.int64, 3, 4), N)], [F], seed=7.0, dtype=1)
    yield node("Multinomial", 7, [(ramp(2, 5, low=0.1, high=1), F)], ["tensor(int32)"], sample_size=6, seed=7.0)


def _normalization() -> Iterator[OwnNode]:
    image, x = (ramp(1, 3, 4, 4, low=0.1, high=2), F), (waves(2, 3, 4), F)
    scale, bias = (ramp(4, low=0.5, high=1.5), F), (ramp(4), F)
    for version in (9, 13):
        yield node("MeanVarianceNormalization", version, [image], [F])
    yield node("RMSNormalization", 23, [x, scale], [F])
    yield node("LayerNormalization", 17, [x, scale], [F])
    yield node("LayerNormalization", 17, [x, scale, bias], [F, F, F], label="statistics")
    yield node("LayerNormalization", 1, [x, scale, bias], [F, F, F], until=1)
    yield node("SimplifiedLayerNormalization", 1, [x, scale], [F, F])
    groups = [(waves(2, 4, 3, 3), F), (ramp(2, low=0.5, high=1.5), F), (ramp(2), F)]
    yield node("GroupNormalization", 18, groups, [F], until=18, num_groups=2)


def _others() -> Iterator[OwnNode]:
    image = (ramp(1, 3, 4, 4, low=0.1, high=2), F)
    for version in (1, 2):
        yield node("GlobalLpPool", version, [image], [F], **({"p": 2.0} if version == 1 else {"p": 2}))
    yield node("MaxRoiPool", 1, [image, (np.array([[0, 0, 0, 3, 3]], np.float32), F)], [F], pooled_shape=[2, 2])
    for op_type, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        w, r = (waves(1, gates * 2, n, low=-1, high=1) for n in (3, 2))
        lengths = (np.array([4, 3], np.int32), I32)
        x = (waves(4, 2, 3, low=-1, high=1), F)
        yield node(op_type, 7, [x, (w, F), (r, F), GONE, lengths], [F, F], hidden_size=2)
        yield node(op_type, 1, [x, (w, F), (r, F), GONE, lengths], ["", F], until=3, hidden_size=2)
        yield node(op_type, 1, [x, (w, F), (r, F)], [F, F], until=3, output_sequence=1, hidden_size=2)
    yield node("BitCast", 26, [(ramp(2, 3), F)], [F], to=1)
    signal = (waves(2, 8, 1), F)
    yield node("DFT", 17, [signal, (scalar(6, np.int64), N)], [F], axis=1)
    yield node("DFT", 20, [signal, (scalar(6, np.int64), N), (scalar(1, np.int64), N)], [F])
    data, weights = (bytes_of(np.uint8, 1, 2, 4, 4, high=200), U8), (bytes_of(np.uint8, 3, 2, 2, 2, high=20), U8)
    scale, zero = (scalar(0.05), F), (scalar(3, np.uint8), U8)
    bias = (np.array([-900, 800, 300], np.int32), I32)
    yield node(
        "QLinearConv", 10, [data, scale, zero, weights, scale, zero, (scalar(0.5), F), zero, bias], [U8], label="bias"
    )
    small = (ramp(1, 1, 2, 2), F)
    none, scales = (np.array([], np.float32), F), (np.array([1, 1, 2, 3], np.float32), F)
    yield node("Resize", 11, [small, none, scales], [F], mode="nearest")
