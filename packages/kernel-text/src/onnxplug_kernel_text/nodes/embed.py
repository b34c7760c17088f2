"""EmbedLayerNormalization and QEmbedLayerNormalization of domain com.microsoft."""

from __future__ import annotations

import math

import numpy as np

from onnxplug_kernel_text.embed import embedding, ones
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type

_ALONE = 128
_FLOAT32 = ("f16", "bf16", "f32")


def embedded(call: NodeCall, group: int, fault: tuple[Ref, int] | None = None) -> Job | None:
    """EmbedLayerNormalization (ids, segments, tables of words, places and segments, gamma, beta, mask, places), and of 8-bit tables, with
    five scales and five zero points instead of places. ``group`` work-items share a line; ``fault``: where to tell of a number that a
    table has not, by which number."""
    ids, table, quantized = call.input(0), call.input(2), call.op_type == "QEmbedLayerNormalization"
    type_, id_type, length = text_type(call.output().dtype), text_type(ids.dtype), table.shape[1]
    segments = call.given(1) is not None and call.given(4) is not None
    tables = [2, 3, *([4] if segments else []), 5, 6]
    if (
        type_ not in _FLOAT32
        or id_type not in ("i32", "i64")
        or any(call.input(n).dtype != table.dtype for n in tables)
    ):
        return None
    parameters = [[n, n + 6, n + 11] if quantized else [n] for n in tables]
    if quantized and any(math.prod(call.input(n).shape) != 1 for parts in parameters for n in parts[1:]):
        return None
    numbered = [
        n for n in (None if quantized else 8, 1 if segments else None, 7) if n is not None and call.given(n) is not None
    ]
    if any(call.input(n).dtype != ids.dtype for n in numbered):
        return None
    if len(ids.shape) != 2 or any(call.input(n).shape[1:] != (length,) for n in tables[:-2]):
        return None
    if any(call.input(n).shape != (length,) for n in (5, 6)) or (
        call.given(7) is not None and call.input(7).shape != ids.shape
    ):
        return None
    (batch, period), lines = ids.shape, math.prod(ids.shape)
    places = None if quantized else call.given(8)
    if period > call.input(3).shape[0] if places is None else places.shape not in (ids.shape, (1, period)):
        return None
    if segments and call.input(1).shape != ids.shape:
        return None
    total = call.wanted(2) is not None
    text = embedding(
        call.op_type, type_, id_type, places=places is not None, segments=segments, total=total, group=group,
        watched=fault is not None, bytes_=text_type(table.dtype) if quantized else "",
    )  # fmt: skip
    order = [
        0,
        *([8] if places is not None else []),
        *([1] if segments else []),
        *(n for parts in parameters for n in parts),
    ]
    tensors = [*(call.read(n) for n in order), call.write(), *([call.write(2)] if total else [])]
    tensors += [fault[0]] if fault is not None else []
    sizes = [call.input(n).shape[0] for n in tables[:-2]]
    place_period = period if places is None else math.prod(places.shape)
    numbers = [length, period, place_period, *sizes, *([] if segments else [0]), *([] if fault is None else [fault[1]])]
    scalars = (*integers(*numbers), np.float32(call.attributes.get("epsilon", 1e-12)))
    launches = [Launch(text, call.op_type, tuple(tensors), scalars, lines, group)]
    if call.wanted(1) is not None:
        masked = call.given(7) is not None
        counted = [*([call.read(7)] if masked else []), call.write(1)]
        text = ones("words", id_type, mask=masked)
        launches.append(Launch(text, "words", tuple(counted), integers(batch, period), -(-batch // _ALONE), _ALONE))
    return Job(launches)
