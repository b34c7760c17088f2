"""Regions of a pattern of nodes with one result, on the device: attention written out, float products between quantized tensors and by
weights of few bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cupy
import numpy as np

from onnxplug.contract import CompiledRegion, Into, Region, RunContext, TensorSpec
from onnxplug_ep_cuda.codegen.bound import BoundJob
from onnxplug_ep_cuda.codegen.launch import Job
from onnxplug_ep_cuda.queue import Queue
from onnxplug_kernel_text.nodes import qdq, weights
from onnxplug_kernel_text.nodes.attention import Attend
from onnxplug_kernel_text.nodes.pattern import described, patterns

Make = Callable[[Mapping[str, TensorSpec], Mapping[str, int]], Into]
"""(specs of all tensors, their numbers among the arguments) -> a call on the device; the scratch memory comes last."""


class PatternRegion(CompiledRegion):
    """A region for any shapes, its constants on the device. ``make`` makes a call for shapes that are known."""

    def __init__(
        self, region: Region, queue: Queue, constants: Mapping[str, np.ndarray], output: str, make: Make
    ) -> None:
        self._queue, self._make, self._output = queue, make, output
        self._inputs = [value.name for value in region.inputs]
        self._constants = dict(constants)
        with queue.inside():
            self.held = [cupy.asarray(array) for array in self._constants.values()]
            queue.compute.synchronize()

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        names = [*self._inputs, *self._constants, self._output]
        made = specs[self._output]
        known = {**specs, **{name: TensorSpec(a.dtype, a.shape) for name, a in self._constants.items()}}
        if 0 in made.shape:
            return BoundPattern(self, Into(lambda *_: None), made)
        with self._queue.inside():
            return BoundPattern(self, self._make(known, {n: at for at, n in enumerate(names)}), made)

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        raise NotImplementedError("a region of a pattern is bound before it runs")


class BoundPattern(CompiledRegion):
    """A region for the shapes of one plan. Keeps no state between runs."""

    def __init__(self, region: PatternRegion, into: Into, made: TensorSpec) -> None:
        self._region, self._made, self._workspace, self._run = region, made, into.workspace, into.call

    def output_shapes(self, inputs: Sequence[tuple[int, ...] | None]) -> list[tuple[int, ...] | None]:
        return [self._made.shape]

    def workspace(self, inputs: Sequence[tuple[int, ...] | None]) -> int:
        return self._workspace

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        y = cupy.empty(self._made.shape, self._made.dtype)
        self.run_into(context, inputs, [y])
        return [y]

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        if outputs[0] is not None:
            scratch = [context.workspace] if self._workspace else []
            self._run(*inputs, *self._region.held, *outputs, *scratch)
        return True


def attention_region(region: Region, queue: Queue, attend: Attend) -> PatternRegion:
    """Attention written out; ``attend`` makes a call of it."""
    (found,) = patterns(region.graph, lambda node: False)
    mask = found.mask
    constants = {mask.name: mask.constant} if mask is not None and mask.constant is not None else {}
    return PatternRegion(
        region, queue, constants, found.y.name,
        lambda specs, numbers: attend(described(found, specs, numbers), len(numbers)),
    )  # fmt: skip


def quantized_region(region: Region, queue: Queue) -> PatternRegion:
    """A float product or convolution between quantized tensors."""
    (found,) = qdq.patterns(region.graph, lambda node: False)
    constants = {v.name: v.constant for v in found.values if v is not None and v.constant is not None}
    names = [None if v is None else v.name for v in (*found.values, found.y)]
    return PatternRegion(
        region, queue, constants, found.y.name,
        lambda specs, numbers: _launched(qdq.lowered(found, specs), names, numbers),
    )  # fmt: skip


def weights_region(region: Region, queue: Queue) -> PatternRegion:
    """A product by weights of few bits."""
    (found,) = weights.patterns(region.graph, lambda node: False)
    names = [found.x.name, *found.constants, found.y.name]
    return PatternRegion(
        region, queue, found.constants, found.y.name,
        lambda specs, numbers: _launched(weights.lowered(found, specs), names, numbers),
    )  # fmt: skip


def _launched(job: Job, names: Sequence[str | None], numbers: Mapping[str, int]) -> Into:
    """A job without scratch memory whose operands have these names."""
    bound, order = BoundJob(job), [None if name is None else numbers[name] for name in names]
    return Into(lambda *operands: bound(*(None if n is None else operands[n] for n in order)))
