"""Fourier transforms and windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import ELEMENT_CODES, numpy_dtype
from operators.case import Case, Draw, strategy


@strategy("DFT")
def dft(d: Draw) -> Case:
    inverse, onesided = d.pick(0, 1), d.pick(0, 1)
    shape = [d.integer(1, 2), *(d.pick(4, 5, 3, 1) for _ in range(d.pick(1, 2)))]
    rank = len(shape) + 1
    axis = d.pick(*range(1, len(shape)), *range(-rank + 1, -1))
    parts = 2 if (inverse and onesided) or (not onesided and d.flag()) else 1
    if inverse and onesided and shape[axis if axis > 0 else axis + 1] == 1:
        shape[axis if axis > 0 else axis + 1] = 2  # one frequency is no signal
    length = None
    if d.flag() or d.cell.parameter == "T2":
        length = np.array(d.pick(4, 3, 6), numpy_dtype(d.element("T2")))
    attributes = {**d.maybe(inverse=inverse, onesided=onesided), "inverse": inverse, "onesided": onesided}
    x = d.tensor((*shape, parts))
    if d.version == 17:
        return Case([x, length], {**attributes, "axis": axis})
    return Case([x, length, np.array(axis, np.int64) if axis != -2 or d.flag() else None], attributes)


@strategy("STFT")
def stft(d: Draw) -> Case:
    dtype = numpy_dtype(d.element("T2"))
    size, frame = d.pick(12, 9), d.pick(4, 5)
    complex_ = d.flag()
    window = d.optional(lambda: d.tensor((frame,)))
    length = np.array(frame, dtype) if window is None or d.flag() else None
    attributes = {"onesided": 0} if complex_ else d.maybe(onesided=d.pick(1, 0))
    return Case(
        [d.tensor((d.integer(1, 2), size, 2 if complex_ else 1)), np.array(d.pick(2, 3), dtype), window, length],
        attributes,
    )


@strategy("HannWindow", "HammingWindow", "BlackmanWindow")
def window_(d: Draw) -> Case:
    attributes: dict[str, Any] = {"output_datatype": ELEMENT_CODES[d.element("T2")], **d.maybe(periodic=d.pick(1, 0))}
    return Case([np.array(d.pick(8, 5, 3), numpy_dtype(d.element("T1")))], attributes)


@strategy("MelWeightMatrix")
def mel_weight_matrix(d: Draw) -> Case:
    integer, real = numpy_dtype(d.element("T1")), numpy_dtype(d.element("T2"))
    bins, length, rate = d.pick(4, 6), d.pick(32, 64), 8192
    inputs = [np.array(v, integer) for v in (bins, length, rate)] + [np.array(v).astype(real) for v in (0, 4096)]
    return Case(inputs, {"output_datatype": ELEMENT_CODES[d.element("T3")]})
