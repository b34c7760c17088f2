"""RotaryEmbedding, of ONNX and of domain com.microsoft."""

from __future__ import annotations

import math

from onnxplug_kernel_text.nodes.attention import strides
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type
from onnxplug_kernel_text.rotary import rotary

_BLOCK = 256
_FLOATS = ("f16", "bf16", "f32")


def embedding(call: NodeCall, fault: tuple[Ref, int] | None = None) -> Job | None:
    """RotaryEmbedding-23 (x, cosines, sines, places). ``fault``: where to tell of a place that has no angles, by which number."""
    return _rotated(call, (1, 2), 3, fault)


def embedding_contrib(call: NodeCall, fault: tuple[Ref, int] | None = None) -> Job | None:
    """RotaryEmbedding of domain com.microsoft (x, places, cosines, sines)."""
    return _rotated(call, (2, 3), 1, fault)


def embedding_of_three(call: NodeCall, fault: tuple[Ref, int] | None = None) -> Job | None:
    """MRotaryEmbedding of domain com.microsoft (x, places in time, height and width, cosines, sines)."""
    return None if call.attributes.get("scale", 1.0) != 1 else _rotated(call, (2, 3), 1, fault, three=True)


def _rotated(
    call: NodeCall, angles: tuple[int, int], places: int, fault: tuple[Ref, int] | None, *, three: bool = False
) -> Job | None:
    x, cosines, a = call.input(0), call.input(angles[0]), call.attributes
    types = text_type(x.dtype), text_type(cosines.dtype)
    if len(x.shape) not in (3, 4) or not cosines.shape or call.input(angles[1]).shape != cosines.shape:
        return None
    half, packed = cosines.shape[-1], len(x.shape) == 3
    heads = (a.get("num_heads", 0) or x.shape[-1] // max(2 * half, 1)) if packed else x.shape[1]
    if packed and (heads < 1 or x.shape[2] % heads):
        return None
    if types[0] not in _FLOATS or types[1] not in _FLOATS or call.input(angles[1]).dtype != cosines.dtype:
        return None
    batch, rows, size = (x.shape[0], x.shape[1], x.shape[2] // heads) if packed else (x.shape[0], *x.shape[2:])
    if (a.get("rotary_embedding_dim", 0) or size) != 2 * half or 2 * half > size:
        return None
    kind: str | None = None
    tensors: list[Ref] = [call.read(0), *(call.read(n) for n in angles)]
    if call.given(places) is not None:
        given = call.input(places).shape
        kind = "each" if given == (batch, rows) else "first" if given == (1,) else None
        if three:
            kind = "three" if given == (3, batch, rows) and _split(call, half) and len(cosines.shape) == 2 else None
        if kind is None:
            return None
        tensors.append(call.read(places))
    elif three or cosines.shape != (batch, rows, half):
        return None
    text = rotary(
        call.op_type, *types, interleaved=bool(a.get("interleaved", 0)), places=kind, watched=fault is not None,
        turns=bool(a.get("mrope_layout", 0)),
    )  # fmt: skip
    points = math.prod(x.shape)
    if not points:
        return Job()
    if not math.prod(cosines.shape):  # no row of angles for any place
        return None
    scalars = integers(
        points, heads, rows, size, half, math.prod(cosines.shape[:-1]), *strides(packed, heads, rows, size)[:3]
    )
    tensors.append(call.write())
    if fault is not None:
        tensors.append(fault[0])
        scalars += integers(fault[1])
    if three:
        scalars += integers(*a["mrope_section"], batch * rows)
    return Job([Launch(text, call.op_type, tuple(tensors), scalars, -(-points // _BLOCK), _BLOCK)])


def _split(call: NodeCall, half: int) -> bool:
    """Whether angles are split in three."""
    sections = list(call.attributes["mrope_section"])
    whole = len(sections) == 3 and min(sections) >= 0 and sum(sections) == half
    return whole and call.attributes.get("mrope_layout", 0) in (0, 1)
