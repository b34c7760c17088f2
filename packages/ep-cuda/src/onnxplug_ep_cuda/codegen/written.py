"""Operators whose launches are described for any device: a few numbers of this one go in."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug.contract import NodeView, TensorSpec
from onnxplug.contract.errors import Fail, RuntimeException
from onnxplug_ep_cuda.codegen.launch import Call, Job
from onnxplug_ep_cuda.codegen.passes import BLOCK
from onnxplug_kernel_text.nodes import displaced, experts, hybrid, indexing, sample, selection, suppression, topk
from onnxplug_kernel_text.nodes.faults import INFINITE, NO_STEP, TOO_MANY

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
    """RoiAlign."""
    fault, *marks = call.fault()
    marks += [call.fault(INFINITE)[1], call.fault(TOO_MANY, RuntimeException)[1]]
    return sample.roi_align(call, fault, marks, BLOCK)


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


def gather(call: Call) -> Job | None:
    """Gather."""
    return indexing.gather(call, call.fault(), BLOCK)


def gather_elements(call: Call) -> Job | None:
    """GatherElements."""
    return indexing.gather_elements(call, call.fault(error=Fail), BLOCK)


def gather_nd(call: Call) -> Job | None:
    """GatherND."""
    return indexing.gather_nd(call, call.fault(), BLOCK)


def scatter_elements(call: Call) -> Job:
    """ScatterElements and its predecessor Scatter."""
    return indexing.scatter_elements(call, call.fault(), BLOCK, apart=True)


def scatter_nd(call: Call) -> Job:
    """ScatterND."""
    return indexing.scatter_nd(call, call.fault(), BLOCK, apart=True)


def as_first(node: NodeView, inputs: Sequence[TensorSpec | None]) -> TensorSpec:
    """The result is like the first input."""
    assert inputs[0] is not None
    return TensorSpec(inputs[0].dtype, inputs[0].shape)


def reverse_sequence(call: Call) -> Job | None:
    """ReverseSequence of elements that fit a register."""
    if call.input(0).dtype.itemsize > indexing.WIDEST:
        return None
    return indexing.reverse_sequence(call, call.fault(NO_STEP, Fail), BLOCK)


def one_hot(call: Call) -> Job | None:
    """OneHot of elements that fit a register."""
    if call.output().dtype.itemsize > indexing.WIDEST:
        return None
    return indexing.one_hot(call, BLOCK)
