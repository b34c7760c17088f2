"""The attentions of domain com.microsoft as problems for the attention kernel: biases of queries, keys and values, caches, paddings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from onnxplug.contract import TensorSpec
from onnxplug_kernel_text.layout import dense
from onnxplug_kernel_text.nodes.attention import Four, Problem, View, present, scores_of, strides, with_mask
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Launch, integers, text_type
from onnxplug_kernel_text.padding import padding

_ALIGNMENT = 256
_BLOCK = 256
_FILTER = -10000.0


@dataclass
class Scratch:
    """What is taken of the scratch memory so far."""

    call: NodeCall
    nbytes: int = 0
    launches: list[Launch] = field(default_factory=list)

    def take(self, elements: int, size: int) -> Ref:
        """Room for elements of ``size`` bytes."""
        ref = self.call.scratch(size, self.nbytes // size)
        self.nbytes += -(-elements * size // _ALIGNMENT) * _ALIGNMENT
        return ref


@dataclass(frozen=True)
class Heads:
    """Queries, keys or values: where they are, (batch, heads, rows, elements), and a bias that is still to be added."""

    view: View
    shape: Four
    bias: Ref | None = None


def described(call: NodeCall) -> Problem | None:
    """MultiHeadAttention; None for caches that are written in place."""
    query = call.input(0)
    if call.given(8) is not None or call.given(9) is not None:
        return None
    heads = call.attributes["num_heads"]
    given = [spec.shape for spec in (call.given(n) for n in range(3)) if spec is not None]
    if heads < 1 or any(len(shape) == 3 and shape[2] % heads for shape in given):
        return None
    if any(len(shape) == 5 and shape[2:4] != (heads, count) for shape, count in zip(given, (3, 2), strict=False)):
        return None
    if any(len(shape) == 4 and shape[1] != heads for shape in given):
        return None
    if len(query.shape) == 5:
        parts = [_packed(call, 0, 3, n) for n in range(3)]
    elif call.given(1) is not None and len(call.input(1).shape) == 5:
        parts = [_heads(call, 0, heads), *(_packed(call, 1, 2, n) for n in range(2))]
    elif call.given(1) is not None and call.given(2) is not None:
        parts = [_heads(call, n, heads) for n in range(3)]
    else:
        return None
    if call.given(3) is not None:
        first, turned = 0, call.given(1) is not None and len(call.input(1).shape) == 4
        for n, part in enumerate(parts):
            if n == 0 or not turned:  # keys of a cross attention have their bias in them
                parts[n] = replace(part, bias=call.read(3, first))
            first += part.shape[1] * part.shape[3]
        if call.input(3).shape != (first,):
            return None
    if any(spec is not None and spec.dtype != query.dtype for spec in (call.given(n) for n in (1, 2, 3, 6, 7))):
        return None
    for n, part in ((6, parts[1]), (7, parts[2])):
        past, (count, rows_heads, _, size) = call.given(n), part.shape
        if past is not None and (len(past.shape) != 4 or past.shape != (count, rows_heads, past.shape[2], size)):
            return None
    caches = [None if call.given(n) is None else (call.read(n), call.input(n).shape[2]) for n in (6, 7)]
    room = [None if call.wanted(n) is None else call.write(n) for n in (1, 2)]
    if (caches[0] is None) != (caches[1] is None) or (caches[0] and caches[1] and caches[0][1] != caches[1][1]):
        return None
    return _attention(call, Scratch(call), parts, caches, room, mask=4, bias=5)


def self_attention(call: NodeCall, projected: Ref, scratch: Scratch, *, biased: bool = False) -> Problem | None:
    """Attention behind its input projection, which is (batch, sequence, queries and keys and values side by side). The bias is still to be
    added, where the projection is not ``biased``."""
    x, weights, a = call.input(0), call.input(1), call.attributes
    if call.given(6) is not None or a.get("past_present_share_buffer", 0) or a.get("do_rotary", 0):
        return None
    heads, width = a["num_heads"], weights.shape[1]
    sizes = list(a.get("qkv_hidden_sizes") or [width // 3] * 3)
    if any(size % heads for size in sizes) or sum(sizes) != width or sizes[0] != sizes[1]:
        return None
    batch, length, _ = x.shape
    parts, first = [], 0
    for size in sizes:
        view = View(replace(projected, offset=projected.offset + first), (length * width, size // heads, width, 1))
        bias = call.read(2, first) if call.given(2) is not None and not biased else None
        parts.append(Heads(view, (batch, heads, length, size // heads), bias))
        first += size
    caches: list[tuple[Ref, int] | None] = [None, None]
    room: list[Ref | None] = [None, None]
    if (call.given(4) is not None or call.wanted(1) is not None) and sizes[1] != sizes[2]:
        return None
    if call.given(4) is not None:
        past = call.input(4).shape
        if len(past) != 5 or past != (2, batch, heads, past[3], sizes[1] // heads):
            return None
        caches = [(call.read(4, n * math.prod(past[1:])), past[3]) for n in range(2)]
    if call.wanted(1) is not None:
        room = [call.write(1, n * math.prod(call.output(1).shape[1:])) for n in range(2)]
    if any(spec is not None and spec.dtype != x.dtype for spec in (weights, call.given(2), call.given(4))):
        return None
    return _attention(call, scratch, parts, caches, room, mask=3, bias=5)


def _attention(
    call: NodeCall,
    scratch: Scratch,
    parts: list[Heads],
    caches: list[tuple[Ref, int] | None],
    room: list[Ref | None],
    *,
    mask: int,
    bias: int,
) -> Problem | None:
    type_ = text_type(call.input(0).dtype)
    (batch, heads, queries, size), (_, _, fresh, _), (*_, value_size) = (part.shape for part in parts)
    alike = all(part.shape[:2] == (batch, heads) for part in parts) and parts[1].shape[3] == size
    if type_ not in ("f16", "bf16", "f32") or not alike or parts[2].shape[2] != fresh:
        return None
    past = 0 if caches[0] is None else caches[0][1]
    q = _placed(scratch, "q", parts[0], None, None, type_)
    k, v = (
        _placed(scratch, name, part, cache, where, type_)
        for name, part, cache, where in zip("kv", parts[1:], caches, room, strict=True)
    )
    problem = Problem(
        type_, (batch, heads, heads, queries, past + fresh, size, value_size), q, k, v,
        View(call.write(), strides(True, heads, queries, value_size)),
        call.attributes.get("scale") or 1 / math.sqrt(size), offset=past, scores=scores_of(call), kept=2,
    )  # fmt: skip
    future = bool(call.attributes.get("unidirectional", 0)) and queries > 1
    found: Problem | None = problem
    if call.given(mask) is not None:
        found = _padded(scratch, problem, mask, bias, future=future)
    else:
        if future:
            found = problem = replace(problem, right=0)
        if call.given(bias) is not None:
            found = with_mask(problem, call.read(bias), call.input(bias))
    return None if found is None else replace(found, before=tuple(scratch.launches), held=scratch.nbytes)


def _heads(call: NodeCall, n: int, heads: int) -> Heads:
    """An input as (batch, rows, heads * elements), or as (batch, heads, rows, elements)."""
    shape, ref = call.input(n).shape, call.read(n)
    if len(shape) == 4:
        return Heads(View(ref, strides(False, shape[1], shape[2], shape[3])), (shape[0], shape[1], shape[2], shape[3]))
    batch, rows, width = shape
    return Heads(View(ref, strides(True, heads, rows, width // heads)), (batch, heads, rows, width // heads))


def _packed(call: NodeCall, n: int, count: int, place: int) -> Heads:
    """One of ``count`` that lie side by side in (batch, rows, heads, count, elements)."""
    batch, rows, heads, _, size = call.input(n).shape
    step = count * size
    return Heads(
        View(call.read(n, place * size), (rows * heads * step, step, heads * step, 1)), (batch, heads, rows, size)
    )


def _placed(
    scratch: Scratch, name: str, part: Heads, cache: tuple[Ref, int] | None, room: Ref | None, type_: str
) -> View:
    """Where a part is with its bias and behind its cache: in ``room``, which is to hold it, or where it was, or in scratch memory."""
    batch, heads, fresh, width = part.shape
    past = 0 if cache is None else cache[1]
    if room is None:
        if part.bias is None and cache is None:
            return part.view
        room = scratch.take(batch * heads * (past + fresh) * width, part.view.ref.size)
    shape = (batch, heads, past, fresh, width)
    scratch.launches += present(name, None if cache is None else cache[0], part.view, room, shape, part.bias, type_)
    return View(room, strides(False, heads, past + fresh, width))


def _padded(scratch: Scratch, problem: Problem, mask: int, bias: int, *, future: bool) -> Problem | None:
    """A problem with what its padding, the future and a bias add to the scores, in scratch memory."""
    call = scratch.call
    batch, heads, _, queries, keys, _, _ = problem.shape
    spec, added = call.input(mask), call.given(bias)
    form = _form(spec, problem)
    if form is None or spec.dtype != np.int32:
        return None
    kind, first, m_batch, m_row = form
    sizes, steps = [batch, 1, queries if future or m_row else 1, keys], []
    if added is not None:
        if len(added.shape) != 4 or any(
            n not in (1, m) for n, m in zip(added.shape, (batch, heads, queries, keys), strict=True)
        ):
            return None
        steps = [0 if n == 1 else s for n, s in zip(added.shape, dense(added.shape), strict=True)]
        sizes = [max(a, b) for a, b in zip(sizes, added.shape, strict=True)]
    points = math.prod(sizes)
    out = scratch.take(points, 4)
    text = padding("padding", kind, bias=None if added is None else text_type(added.dtype), future=future)
    tensors = (call.read(mask), *([call.read(bias)] if added is not None else []), out)
    filter_ = np.float32(call.attributes.get("mask_filter_value", _FILTER))
    scalars = integers(points, *sizes, problem.offset, first, m_batch, m_row, *steps)
    scratch.launches.append(Launch(text, "padding", tensors, (*scalars, filter_), -(-points // _BLOCK), _BLOCK))
    padded = with_mask(problem, out, TensorSpec(np.dtype(np.float32), tuple(sizes)))
    return None if padded is None else replace(padded, finite=added is None and bool(np.isfinite(filter_)))


def _form(spec: TensorSpec, problem: Problem) -> tuple[str, int, int, int] | None:
    """How a mask tells of padding: kind, first element, strides of batch and of row; None for what is none of the known forms."""
    batch, _, _, queries, keys, _, _ = problem.shape
    shape = spec.shape
    if len(shape) == 1:
        return ("spans" if shape[0] == 2 * batch else "ends", 0, 0, 0) if shape[0] >= batch else None
    if shape == (batch, keys):
        return "keys", 0, keys, 0
    if shape == (batch, queries, keys):
        return "keys", 0, queries * keys, keys
    if len(shape) == 4 and shape[:2] == (batch, 1) and shape[2] >= problem.offset + queries and shape[3] >= keys:
        return "keys", problem.offset * shape[3], shape[2] * shape[3], shape[3]
    return None
