"""Operators whose launches are described for any device: a few numbers of this one go in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_ep_cuda.codegen.launch import Call, Job, Ref
from onnxplug_ep_cuda.codegen.passes import BLOCK
from onnxplug_kernel_text.nodes import displaced, experts, hybrid, indexing, sample, selection, suppression, topk

_GROUP = 256
"""Threads that share a class of boxes."""
_MANY = 4096
"""Lines from which on threads that find the first elements of one each are worth more than CuPy's sorting of all."""
_FIRST = 32
"""First elements that are found so."""
_LISTED = 1 << 20
"""Elements up to which threads that walk a run of them each are worth more than CuPy's sums of all."""
_ALONE = 32
"""Threads of a block that walk a run each."""
_FEW = 64
"""Pairs of a row and an expert up to which a thread for each column of each expert is worth more than CuPy's products."""
_FAULT = 4
_LARGEST = 8
"""Bytes of an element."""


def top_k(call: Call) -> Job | None:
    """TopK of many lines, few elements of each."""
    x, given = call.input(0), call.value(1)
    k = int(call.attributes["k"] if given is None else given.reshape(-1)[0])
    extent = x.shape[call.attributes.get("axis", -1)] if x.shape else 0
    if k > _FIRST or math.prod(x.shape) < _MANY * extent:
        return None
    return topk.top_k(call, BLOCK)


def suppress(call: Call) -> Job:
    """NonMaxSuppression."""
    return suppression.suppress(call, BLOCK, _GROUP)


def col2im(call: Call) -> Job | None:
    """Col2Im."""
    return displaced.col2im(call, BLOCK)


def grid_sample(call: Call) -> Job | None:
    """GridSample."""
    return sample.grid_sample(call, BLOCK)


def roi_align(call: Call) -> Job | None:
    """RoiAlign. Nobody reads what is told of an image that is not there, or a region that is none: that would mean waiting."""
    found = sample.roi_align(call, call.scratch(_FAULT), (0, 0, 0), BLOCK)
    return None if found is None else replace(found, workspace=_FAULT)


def linear_attention(call: Call) -> Job | None:
    """LinearAttention: a thread for each column of a head's state."""
    return hybrid.linear_attention(call, 1, _ALONE)


def causal_convolution(call: Call) -> Job | None:
    """CausalConvWithState."""
    return hybrid.causal_convolution(call, BLOCK)


def mixture(call: Call) -> Job | None:
    """MoE and QMoE of few rows."""
    pairs = math.prod(call.input(0).shape[:-1]) * call.attributes.get("k", 1)
    return None if pairs > _FEW else experts.mixture(call, _ALONE)


def non_zero(call: Call) -> Job | None:
    """NonZero of few elements."""
    return None if math.prod(call.input(0).shape) > _LISTED else selection.non_zero(call, _ALONE, BLOCK)


def compress(call: Call) -> Job | None:
    """Compress under few conditions."""
    return None if math.prod(call.input(1).shape) > _LISTED else selection.compress(call, _ALONE, BLOCK)


def scatter_elements(call: Call) -> Job:
    """ScatterElements and its predecessor Scatter. Nobody reads what is told of an index out of bounds: that would mean waiting."""
    return replace(indexing.scatter_elements(call, _unread(call), BLOCK, apart=True), workspace=_FAULT)


def scatter_nd(call: Call) -> Job:
    """ScatterND, as above."""
    return replace(indexing.scatter_nd(call, _unread(call), BLOCK, apart=True), workspace=_FAULT)


def as_first(node: NodeView, inputs: Sequence[TensorSpec | None]) -> TensorSpec:
    """The result is like the first input."""
    assert inputs[0] is not None
    return TensorSpec(inputs[0].dtype, inputs[0].shape)


def reverse_sequence(call: Call) -> Job | None:
    """ReverseSequence of elements that fit a register; lengths are held within the tensor, which nobody is told of either."""
    if call.input(0).dtype.itemsize > _LARGEST:
        return None
    return replace(indexing.reverse_sequence(call, _unread(call), BLOCK), workspace=_FAULT)


def one_hot(call: Call) -> Job | None:
    """OneHot of elements that fit a register."""
    if call.output().dtype.itemsize > _LARGEST:
        return None
    return indexing.one_hot(call, BLOCK)


def _unread(call: Call) -> tuple[Ref, int]:
    return call.scratch(_FAULT), 0
