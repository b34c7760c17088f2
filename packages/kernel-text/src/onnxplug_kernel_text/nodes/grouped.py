"""GroupQueryAttention of domain com.microsoft as a problem for the attention kernel: rotation, and caches of sequences that differ in
length."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from onnxplug_kernel_text.cache import appended, lengths
from onnxplug_kernel_text.nodes.attention import Problem, View, strides, with_mask
from onnxplug_kernel_text.nodes.attention_contrib import Scratch
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Launch, integers, text_type
from onnxplug_kernel_text.rotary import rotary
from onnxplug_kernel_text.types import raw

_BLOCK = 256
_FLOATS = ("f16", "bf16", "f32")
QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, LAST, TOTAL, COSINES, SINES, PLACES, BIAS = range(11)
"""Numbers of the inputs. LAST is each sequence's length less one."""
BEYOND = range(11, 17)
"""Inputs that are left to the portable kernel: a score of no key, scales of caches of integers, weights of norms, numbers of new rows."""


@dataclass(frozen=True)
class Faults:
    """Where to tell, by which number, of a place that has no angles and of a length beyond the caches."""

    places: tuple[Ref, int]
    lengths: tuple[Ref, int]


@dataclass(frozen=True)
class Sequences:
    """What the launches for one node share: where lengths and places of new rows are, whether these begin the sequences."""

    scratch: Scratch
    batch: int
    rows: int
    first: bool
    lengths: Ref
    places: Ref
    faults: Faults | None = None


def described(call: NodeCall, faults: Faults | None = None) -> Problem | None:
    """The attention of a node. None for a total length that the plan does not know or that does not go with the rows and the caches, and
    for what ``_plain`` refuses."""
    query, a, total = call.input(QUERY), call.attributes, call.input(TOTAL).constant
    heads, kv_heads = a["num_heads"], a["kv_num_heads"]
    if total is None or total.size != 1 or not _plain(call) or heads % kv_heads:
        return None
    keys, (batch, rows, _), past = int(total.reshape(-1)[0]), query.shape, call.given(PAST_KEY)
    held = 0 if past is None or len(past.shape) != 4 else past.shape[2]
    scratch = Scratch(call)
    parts = _parts(call, heads, kv_heads)
    sizes = [shape[3] for _, shape in parts]
    if sizes[0] != sizes[1] or keys < rows or held < keys != held + rows:
        return None
    if not _fits(call, (batch, kv_heads, rows, keys), held, sizes):
        return None
    room = max(keys, held)
    found = Sequences(scratch, batch, rows, rows == keys, scratch.take(batch, 8), scratch.take(batch * rows, 8), faults)
    scratch.launches.append(_lengths(call, found, room))
    (q, _), (k, _), (v, _) = parts
    if a.get("do_rotary", 0):
        q, k = (
            _rotated(call, found, name, part, n) for name, part, n in (("q", q, heads), ("k", k, kv_heads))
        )  # fmt: skip
    k = _present(call, found, 0, k, (kv_heads, room, sizes[1]))
    v = _present(call, found, 1, v, (kv_heads, room, sizes[2]))
    causal, window = a.get("causal", 1), a.get("local_window_size", -1)
    problem = Problem(
        text_type(query.dtype), (batch, heads, kv_heads, rows, keys, sizes[0], sizes[2]), q, k, v,
        View(call.write(), strides(True, heads, rows, sizes[2])), a.get("scale") or 1 / math.sqrt(sizes[0]),
        lengths=None if found.first and causal else found.lengths,
        left=window - 1 if causal and window > 0 else -1, right=0 if causal else -1, cap=a.get("softcap", 0.0),
    )  # fmt: skip
    masked = with_mask(problem, call.read(BIAS), call.input(BIAS)) if call.given(BIAS) is not None else problem
    return None if masked is None else replace(masked, before=tuple(scratch.launches), held=scratch.nbytes)


def _fits(call: NodeCall, shape: tuple[int, int, int, int], held: int, sizes: list[int]) -> bool:
    """Whether operands have the elements that kernels read by the queries' shape: keys and values for each row, caches that have ``held``
    rows, angles for each pair, a place for each row. ``shape``: batch, heads of keys, rows, keys."""
    batch, kv_heads, rows, keys = shape
    a, query = call.attributes, call.input(QUERY).shape
    heads = a["num_heads"]
    if call.given(KEY) is None:
        whole = query[2] == sizes[0] * (heads + 2 * kv_heads)
    else:
        widths = ((QUERY, heads, sizes[0]), (KEY, kv_heads, sizes[1]), (VALUE, kv_heads, sizes[2]))
        whole = all(call.input(n).shape == (batch, rows, count * size) for n, count, size in widths)
    past = [call.given(n) for n in (PAST_KEY, PAST_VALUE)]
    cached = all(
        spec is None or spec.shape == (batch, kv_heads, held, size) for spec, size in zip(past, sizes[1:], strict=True)
    )
    cosines, sines, places = (call.given(n) for n in (COSINES, SINES, PLACES))
    turned = True
    if a.get("do_rotary", 0) and cosines is not None and sines is not None:
        turned = len(cosines.shape) == 2 and cosines.shape == sines.shape
        turned = turned and 0 < 2 * cosines.shape[1] <= sizes[0] and cosines.shape[0] > 0
        first = rows == keys  # of whose places the first is read
        least = 1 if first else batch * rows
        turned = turned and (places is None or (places.dtype == np.int64 and math.prod(places.shape) >= least))
    return whole and cached and turned


def _plain(call: NodeCall) -> bool:
    """Whether operands are of one float type, lengths int32, angles floats, and no more is asked for than the result and the caches."""
    query, a = call.input(QUERY), call.attributes
    alike = (call.given(n) for n in (KEY, VALUE, PAST_KEY, PAST_VALUE))
    known = text_type(query.dtype) in _FLOATS and all(spec is None or spec.dtype == query.dtype for spec in alike)
    pairs = ((KEY, VALUE), (PAST_KEY, PAST_VALUE), (COSINES, SINES))
    paired = all((call.given(m) is None) == (call.given(n) is None) for m, n in pairs)
    beyond = any(call.given(n) is not None for n in BEYOND) or call.wanted(3) is not None
    other = a.get("smooth_softmax", 0) == 1 or a.get("sliding_window_cache", 0)
    turns = call.given(COSINES)
    angles = turns is not None and text_type(turns.dtype) in _FLOATS and call.input(SINES).dtype == turns.dtype
    lasts = call.input(LAST)
    return (
        known and paired and not beyond and not other and len(query.shape) == 3
        and lasts.dtype == np.int32 and math.prod(lasts.shape) == query.shape[0] and (angles or not a.get("do_rotary", 0))
    )  # fmt: skip


def _parts(call: NodeCall, heads: int, kv_heads: int) -> list[tuple[View, tuple[int, int, int, int]]]:
    """Queries, keys and values, each with its (batch, heads, rows, elements); without keys they lie side by side in the queries."""
    query = call.input(QUERY)
    batch, rows, width = query.shape
    counts = (heads, kv_heads, kv_heads)
    if call.given(KEY) is not None:
        specs = [call.input(n) for n in (QUERY, KEY, VALUE)]
        sizes = [spec.shape[2] // count for spec, count in zip(specs, counts, strict=True)]
        return [
            (View(call.read(n), strides(True, count, rows, size)), (batch, count, rows, size))
            for n, (count, size) in enumerate(zip(counts, sizes, strict=True))
        ]
    size = width // sum(counts)
    step = (rows * width, size, width, 1)
    return [
        (View(call.read(QUERY, size * sum(counts[:n])), step), (batch, count, rows, size))
        for n, count in enumerate(counts)
    ]


def _lengths(call: NodeCall, found: Sequences, room: int) -> Launch:
    points, faults = found.batch * found.rows, found.faults
    tensors = [call.read(LAST), found.lengths, found.places]
    scalars = integers(points, found.rows, int(not found.first))
    if faults is not None:
        tensors.append(faults.lengths[0])
        scalars += integers(room, faults.lengths[1])
    text = lengths("lengths", watched=faults is not None)
    return Launch(text, "lengths", tuple(tensors), scalars, -(-points // _BLOCK), _BLOCK)


def _rotated(call: NodeCall, found: Sequences, name: str, part: View, heads: int) -> View:
    """A part turned by the places of its rows, in scratch memory, laid out as it was."""
    cosines, size = call.input(COSINES), part.strides[1]
    types = text_type(call.input(QUERY).dtype), text_type(cosines.dtype)
    base = found.scratch.take(found.batch * part.strides[0], part.ref.size)
    turned = View(replace(base, offset=base.offset + part.ref.offset), part.strides)
    given = call.given(PLACES) is not None
    # The rows that begin sequences count from the first of the places that are given.
    kind, places = ("first" if found.first else "each", call.read(PLACES)) if given else ("each", found.places)
    watched = found.faults is not None
    text = rotary(
        f"turned_{name}", *types, interleaved=bool(call.attributes.get("rotary_interleaved", 0)), places=kind, watched=watched
    )  # fmt: skip
    points, half = found.batch * heads * found.rows * size, cosines.shape[-1]
    scalars = integers(points, heads, found.rows, size, half, math.prod(cosines.shape[:-1]), *part.strides[:3])
    tensors = [part.ref, call.read(COSINES), call.read(SINES), places, turned.ref]
    if found.faults is not None:
        tensors.append(found.faults.places[0])
        scalars += integers(found.faults.places[1])
    found.scratch.launches.append(Launch(text, f"turned_{name}", tuple(tensors), scalars, -(-points // _BLOCK), _BLOCK))
    return turned


def _present(call: NodeCall, found: Sequences, n: int, part: View, shape: tuple[int, int, int]) -> View:
    """The cache with a part behind it: (heads, rows there is room for, elements), in the output that wants it or in scratch memory."""
    heads, room, size = shape
    held, itemsize = call.given(PAST_KEY + n), part.ref.size
    points = found.batch * heads * room * size
    target = found.scratch.take(points, itemsize) if call.wanted(n + 1) is None else call.write(n + 1)
    past = held is not None and math.prod(held.shape) > 0 and not found.first
    tensors = [call.read(PAST_KEY + n)] if past else []
    tensors += [part.ref, *([] if found.first else [found.lengths]), target]
    before = held.shape[2] if past and held is not None else 0
    scalars = integers(points, heads, room, size, before, found.rows, *part.strides[:3])
    name = f"appended{n}"
    text = appended(name, raw(itemsize), past=past, first=found.first)
    found.scratch.launches.append(Launch(text, name, tuple(tensors), scalars, -(-points // _BLOCK), _BLOCK))
    return View(target, strides(False, heads, room, size))
