"""Attention as one generated kernel: of the operator here, of the pattern MatMul, Softmax, MatMul in ``pattern``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from onnxplug.contract import Into, TensorSpec
from onnxplug_kernel_text.attention import GROUP, LARGEST, Form, attention, joined
from onnxplug_kernel_text.elementwise import Operand, elementwise
from onnxplug_kernel_text.layout import dense, space
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type
from onnxplug_kernel_text.types import raw

_FEW_BLOCKS = 128
"""Blocks below which a device is not full, so that keys are divided among blocks."""
_SPAN = 256
"""Keys of a part."""
_MOST_PARTS = 32
_FLOAT, _FLOAT16, _BFLOAT16 = 1, 10, 16  # TensorProto.DataType
_BLOCK = 256
Four = tuple[int, int, int, int]
Five = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class View:
    """A tensor of attention: argument, and strides in elements of batch, head, row and column."""

    ref: Ref
    strides: Four


@dataclass(frozen=True)
class Problem:
    """One attention. ``shape``: batch, query heads, key heads, queries, keys, elements of a key, elements of a value. A query sees
    ``left`` keys before and ``right`` behind its place (-1: all); ``mask`` with its type and number of keys, ``finite`` where it can hide
    no key altogether; ``lengths`` of the batch; ``zeros`` for a query that sees nothing, else NaN. ``scores``: where and in which type
    they are asked for, ``kept`` which of them (``attention_rows``). ``before`` makes operands, some in the first ``held`` bytes of the
    scratch memory."""

    type: str
    shape: tuple[int, int, int, int, int, int, int]
    q: View
    k: View
    v: View
    y: View
    scale: float
    mask: View | None = None
    mask_type: str | None = None
    mask_keys: int = 0
    finite: bool = False
    lengths: Ref | None = None
    offset: int = 0
    left: int = -1
    right: int = -1
    cap: float = 0.0
    zeros: bool = True
    scores: tuple[Ref, str] | None = None
    kept: int = 0
    before: Sequence[Launch] = field(default_factory=tuple)
    held: int = 0

    @property
    def fits(self) -> bool:
        """Whether one generated kernel computes it: a tile fits local memory, and scores need not go to memory."""
        return self.scores is None and max(self.shape[-2:]) <= LARGEST


Attend = Callable[[Problem, int], Into]
"""(attention, number of the scratch memory among its arguments) -> a call on the device."""

AnyCall = TypeVar("AnyCall", bound=NodeCall)


def node(describe: Callable[[AnyCall], Problem | None], call: AnyCall) -> Job | None:
    """The launches of a node that is an attention; None where it is left to the portable kernel."""
    found = describe(call)
    return None if found is None or not found.fits else job(found, len(call.inputs) + len(call.outputs))


def described(call: NodeCall) -> Problem | None:
    """Attention-23 and later: grouped heads, caches, masks, causal and sliding windows; None for softmax in a type other than float32."""
    q, k, v, a = call.input(0), call.input(1), call.input(2), call.attributes
    type_ = text_type(q.dtype)
    if type_ not in ("f16", "bf16", "f32"):
        return None
    if any(spec.dtype != q.dtype for spec in (k, v)) or a.get("softmax_precision", _FLOAT) != _FLOAT:
        return None
    packed = len(q.shape) == 3
    q_heads, k_heads = (a.get("q_num_heads"), a.get("kv_num_heads")) if packed else (q.shape[1], k.shape[1])
    if not q_heads or not k_heads or q_heads % k_heads or not len(q.shape) == len(k.shape) == len(v.shape):
        return None
    (batch, queries, size), (_, fresh, _), (_, _, value_size) = (
        (s.shape[0], s.shape[1], s.shape[2] // n) if packed else (s.shape[0], s.shape[2], s.shape[3])
        for s, n in ((q, q_heads), (k, k_heads), (v, k_heads))
    )
    fresh_values = v.shape[:2] if packed else (v.shape[0], v.shape[2])
    divided = packed and (q.shape[2] % q_heads or k.shape[2] % k_heads or v.shape[2] % k_heads)
    if divided or (not packed and v.shape[1] != k_heads) or fresh_values != (batch, fresh):
        return None
    if k.shape[0] != batch or size != (k.shape[2] // k_heads if packed else k.shape[3]):
        return None
    views = {
        n: View(call.read(n), strides(packed, heads, length, width))
        for n, heads, length, width in (
            (0, q_heads, queries, size), (1, k_heads, fresh, size), (2, k_heads, fresh, value_size)
        )
    }  # fmt: skip
    keys, past, before = fresh, 0, list[Launch]()
    if call.wanted(1) is not None or call.given(4) is not None:
        if call.wanted(1) is None or call.wanted(2) is None:
            return None  # caches whose joint nobody asks for
        past = 0 if call.given(4) is None else call.input(4).shape[2]
        for n, width in ((4, size), (5, value_size)):
            cached = call.given(n)
            if (cached is None) != (call.given(4) is None):
                return None
            if cached is not None and cached.shape != (batch, k_heads, past, width):
                return None
        keys = past + fresh
        for n, width in ((1, size), (2, value_size)):
            cache = None if call.given(n + 3) is None else call.read(n + 3)
            before += present(f"present{n}", cache, views[n], call.write(n), (batch, k_heads, past, fresh, width))
            views[n] = View(call.write(n), strides(False, k_heads, keys, width))
    right = 0 if a.get("is_causal", 0) else a.get("right_window_size", -1)
    problem = Problem(
        type_, (batch, q_heads, k_heads, queries, keys, size, value_size), views[0], views[1], views[2],
        View(call.write(), strides(packed, q_heads, queries, value_size)),
        a.get("scale") or 1 / math.sqrt(size), offset=past, left=a.get("left_window_size", -1), right=right,
        cap=a.get("softcap", 0.0), scores=scores_of(call), kept=a.get("qk_matmul_output_mode", 0), before=before,
    )  # fmt: skip
    masked = with_mask(problem, call.read(3), call.input(3)) if call.given(3) is not None else problem
    if call.given(6) is not None and masked is not None:
        masked = replace(masked, lengths=call.read(6))
    return masked


def scores_of(call: NodeCall) -> tuple[Ref, str] | None:
    """Where the fourth output goes, and its type."""
    spec = call.wanted(3)
    return None if spec is None else (call.write(3), text_type(spec.dtype))


def with_mask(problem: Problem, ref: Ref, spec: TensorSpec, *, stretched: bool = False) -> Problem | None:
    """A problem with its mask, broadcast from the right; keys that it does not reach are hidden, unless one element is ``stretched``
    over all."""
    type_, shape = text_type(spec.dtype), (1,) * (4 - len(spec.shape)) + tuple(spec.shape)
    batch, heads, _, queries, keys, _, _ = problem.shape
    if (
        not type_
        or len(shape) != 4
        or any(n not in (1, m) for n, m in zip(shape, (batch, heads, queries), strict=False))
    ):
        return None
    steps = tuple(0 if n == 1 else s for n, s in zip(shape[:3], dense(shape)[:3], strict=True))
    one = stretched and shape[3] == 1
    view = View(ref, (*steps, 0 if one else 1))  # type: ignore[arg-type]
    return replace(problem, mask=view, mask_type=type_, mask_keys=keys if one else shape[3])


def strides(packed: bool, heads: int, length: int, width: int) -> Four:
    """Of a dense (batch, length, heads * width), or where not ``packed`` (batch, heads, length, width)."""
    if packed:
        return heads * length * width, width, heads * width, 1
    return heads * length * width, length * width, width, 1


def moved(name: str, source: View, target: View, shape: Four, bias: Ref | None = None, type_: str = "") -> Launch:
    """A copy of (batch, heads, rows, columns) elements, plus a bias of each column of each head where one is given, in ``type_``."""
    walks = [source.strides, *([(0, shape[3], 0, 1)] if bias is not None else []), target.strides]
    walked = space(shape, walks)
    operands = [Operand(type_ or raw(source.ref.size), pattern) for pattern in walked.patterns]
    body = "y0 = x0 + x1;" if bias is not None else "y0 = x0;"
    text = elementwise(name, operands[:-1], operands[-1:], body, index="i64")
    tensors = (source.ref, *([bias] if bias is not None else []), target.ref)
    return Launch(text, name, tensors, integers(*walked.scalars), -(-walked.points // _BLOCK), _BLOCK)


def present(
    name: str, past: Ref | None, new: View, target: Ref, shape: Five, bias: Ref | None = None, type_: str = ""
) -> list[Launch]:
    """Launches that fill a tensor with a cache and the new keys or values behind it: ``shape`` is (batch, heads, keys of the cache, new
    keys, elements). The new ones get a bias where one is given."""
    batch, heads, before, fresh, width = shape
    own = strides(False, heads, before + fresh, width)
    made = []
    if past is not None and before:
        whole = View(past, strides(False, heads, before, width))
        made.append(moved(f"{name}_0", whole, View(target, own), (batch, heads, before, width)))
    behind = View(replace(target, offset=target.offset + before * width), own)
    return [*made, moved(f"{name}_1", new, behind, (batch, heads, fresh, width), bias, type_)]


def job(problem: Problem, scratch: int) -> Job:
    """The launches of a problem; ``scratch`` is the number of the workspace among its arguments."""
    batch, heads, kv_heads, queries, keys, size, value_size = problem.shape
    rows = queries * (heads // kv_heads)
    form = Form(
        problem.type, size, value_size, problem.mask_type, lengths=problem.lengths is not None,
        window=problem.left >= 0 or problem.right >= 0, cap=problem.cap > 0, few=rows <= 16, zeros=problem.zeros,
    )  # fmt: skip
    tiles = -(-rows // form.queries)
    blocks = tiles * kv_heads * batch
    splits = min(_MOST_PARTS, keys // _SPAN, -(-_FEW_BLOCKS // blocks)) if blocks < _FEW_BLOCKS else 1
    form = replace(form, split=splits > 1)
    numbers = [tiles, queries, keys, kv_heads, heads // kv_heads, problem.offset, problem.left, problem.right]
    numbers += [*problem.q.strides[:3], *problem.k.strides[:3], *problem.v.strides[:3], problem.k.strides[3]]
    tensors = [problem.q.ref, problem.k.ref, problem.v.ref]
    if problem.mask is not None:
        numbers += [*problem.mask.strides, problem.mask_keys]
        tensors.append(problem.mask.ref)
    if problem.lengths is not None:
        tensors.append(problem.lengths)
    ends = (np.float32(problem.scale), np.float32(problem.cap))
    text = attention("attention", form)
    if not form.split:
        scalars = (*integers(*numbers, *problem.y.strides[:3]), *ends)
        last = [Launch(text, "attention", (*tensors, problem.y.ref), scalars, blocks, GROUP)]
        return Job([*problem.before, *last], problem.held)
    parts = batch * heads * queries * splits
    first = problem.held // 4
    part, stat = Ref(scratch, 4, first), Ref(scratch, 4, first + parts * value_size)
    scalars = (*integers(*numbers, splits), *ends)
    points = batch * heads * queries * value_size
    together = integers(points, queries, heads, splits, *problem.y.strides[:3])
    last = [
        Launch(text, "attention", (*tensors, part, stat), scalars, blocks * splits, GROUP),
        Launch(
            joined("joined", problem.type, value_size, zeros=problem.zeros), "joined", (part, stat, problem.y.ref), together,
            -(-points // _BLOCK), _BLOCK,
        ),
    ]  # fmt: skip
    return Job([*problem.before, *last], problem.held + parts * (value_size + 2) * 4)
