"""Regions of written-out attention on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cupy

from onnxplug.contract import CompiledRegion, Into, Region, RunContext, TensorSpec
from onnxplug_ep_cuda.codegen.attention import Attend
from onnxplug_ep_cuda.codegen.pattern import described, patterns
from onnxplug_ep_cuda.queue import Queue


class AttentionRegion(CompiledRegion):
    """A region for any shapes, its mask on the device where that is a constant. ``attend`` makes a call of an attention."""

    def __init__(self, region: Region, queue: Queue, attend: Attend) -> None:
        self._queue, self._attend = queue, attend
        (self._pattern,) = patterns(region.graph, lambda node: False)
        self._inputs = [value.name for value in region.inputs]
        mask = self._pattern.mask
        self._constants = {mask.name: mask.constant} if mask is not None and mask.constant is not None else {}
        with queue.inside():
            self.held = [cupy.asarray(array) for array in self._constants.values()]
            queue.compute.synchronize()

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        names = [*self._inputs, *self._constants, self._pattern.y.name]
        made = specs[self._pattern.y.name]
        known = {**specs, **{name: TensorSpec(a.dtype, a.shape) for name, a in self._constants.items()}}
        if 0 in made.shape:
            return BoundAttention(self, Into(lambda *_: None), made)
        problem = described(self._pattern, known, {n: at for at, n in enumerate(names)})
        with self._queue.inside():
            return BoundAttention(self, self._attend(problem, len(names)), made)

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        raise NotImplementedError("a region of attention is bound before it runs")


class BoundAttention(CompiledRegion):
    """A region for the shapes of one plan. Keeps no state between runs."""

    def __init__(self, region: AttentionRegion, into: Into, made: TensorSpec) -> None:
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
