"""Operators whose launches are described for any device: a few numbers of this one go in."""

from __future__ import annotations

import math

from onnxplug.contract.errors import Fail, RuntimeException
from onnxplug_ep_opencl.kernels.call import Call
from onnxplug_ep_opencl.kernels.elementwise import group_of
from onnxplug_ep_opencl.kernels.lines import GROUP, alone, group_within
from onnxplug_ep_opencl.kernels.shared import described
from onnxplug_kernel_text.nodes import indexing, sample, selection, suppression, topk
from onnxplug_kernel_text.nodes.faults import INFINITE, NO_STEP, TOO_MANY
from onnxplug_kernel_text.nodes.launch import Job


@described
def top_k(call: Call) -> Job:
    """TopK."""
    return topk.top_k(call, alone(call.target))


@described
def suppress(call: Call) -> Job:
    """NonMaxSuppression."""
    return suppression.suppress(
        call, alone(call.target), 0 if call.target.registers else group_within(call.target, GROUP)
    )


@described
def grid_sample(call: Call) -> Job | None:
    """GridSample."""
    return sample.grid_sample(call, _group(call, call.input(0).shape[0] * math.prod(call.output().shape[2:])))


@described
def roi_align(call: Call) -> Job | None:
    """RoiAlign."""
    fault, *marks = call.fault()
    marks += [call.fault(INFINITE)[1], call.fault(TOO_MANY, RuntimeException)[1]]
    images, _, *bins = call.output().shape
    return sample.roi_align(call, fault, marks, _group(call, images * math.prod(bins)))


@described
def non_zero(call: Call) -> Job | None:
    """NonZero."""
    return selection.non_zero(call, alone(call.target), _group(call, _points(call, 0)))


@described
def compress(call: Call) -> Job | None:
    """Compress."""
    return selection.compress(call, alone(call.target), _group(call, math.prod(call.output().shape)))


@described
def gather(call: Call) -> Job | None:
    """Gather."""
    return indexing.gather(call, call.fault(), _group(call, math.prod(call.output().shape)))


@described
def gather_elements(call: Call) -> Job | None:
    """GatherElements."""
    return indexing.gather_elements(call, call.fault(error=Fail), _group(call, _points(call, 1)))


@described
def gather_nd(call: Call) -> Job | None:
    """GatherND."""
    return indexing.gather_nd(call, call.fault(), _group(call, math.prod(call.output().shape)))


@described
def scatter_elements(call: Call) -> Job:
    """ScatterElements and its predecessor Scatter."""
    return indexing.scatter_elements(call, call.fault(), _group(call, _points(call, 1)), apart=False)


@described
def scatter_nd(call: Call) -> Job:
    """ScatterND."""
    return indexing.scatter_nd(call, call.fault(), _group(call, _points(call, 0)), apart=False)


@described
def tensor_scatter(call: Call) -> Job:
    """TensorScatter."""
    fault = call.fault("an update does not fit into the cache from its index on")
    return indexing.tensor_scatter(call, fault, _group(call, _points(call, 1)))


@described
def max_unpool(call: Call) -> Job:
    """MaxUnpool."""
    return indexing.max_unpool(call, call.fault(), _group(call, _points(call, 0)))


@described
def max_roi_pool(call: Call) -> Job | None:
    """MaxRoiPool."""
    fault = call.fault("a region is of an image that there is not", Fail)
    return sample.max_roi_pool(call, fault, _group(call, math.prod(call.output().shape)))


@described
def one_hot(call: Call) -> Job:
    """OneHot."""
    return indexing.one_hot(call, _group(call, math.prod(call.output().shape)))


@described
def reverse_sequence(call: Call) -> Job:
    """ReverseSequence."""
    fault = call.fault(NO_STEP, Fail)
    return indexing.reverse_sequence(call, fault, _group(call, _points(call, 0)))


def _points(call: Call, index: int) -> int:
    return math.prod(call.input(index).shape)


def _group(call: Call, points: int) -> int:
    return group_of(call.target, points)
