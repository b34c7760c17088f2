"""Chains on the device: their programs compiled by NVRTC, and launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import numpy as np

from onnxplug.contract import CompiledRegion, Region, RunContext, TensorSpec
from onnxplug_ep_cuda.codegen.bound import module
from onnxplug_ep_cuda.codegen.lower import Program, lower
from onnxplug_ep_cuda.queue import Queue
from onnxplug_kernel_text.nodes.chains import output_shapes


class Chain(CompiledRegion):
    """A chain for any shapes: ``bind`` writes the program for those that came."""

    def __init__(self, region: Region, queue: Queue) -> None:
        self._nodes, self._queue = list(region.graph.nodes), queue
        self._inputs = [value.name for value in region.inputs]
        self._outputs = [value.name for value in region.outputs]
        self._dtypes = [value.dtype for value in region.outputs]
        self._constants = {
            value.name: value.constant
            for node in self._nodes
            for value in node.inputs
            if value is not None and value.constant is not None and value.name not in self._inputs
        }
        with queue.inside():
            self._tensors = {name: cupy.asarray(array) for name, array in self._constants.items() if array.size != 1}
            queue.compute.synchronize()

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        if any(name not in specs for name in self._inputs):
            return self
        given = {name: specs[name] for name in self._inputs}
        with self._queue.inside():  # modules are loaded on the device that is current
            return BoundChain(self, lower(self._nodes, given, self._constants, self._outputs))

    def output_shapes(self, inputs: Sequence[tuple[int, ...] | None]) -> list[tuple[int, ...] | None] | None:
        if any(shape is None for shape in inputs):
            return None
        given = {name: shape for name, shape in zip(self._inputs, inputs, strict=True) if shape is not None}
        found = output_shapes(self._nodes, given | {name: array.shape for name, array in self._constants.items()})
        return [found[name] for name in self._outputs]

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        specs = {name: TensorSpec(x.dtype, x.shape) for name, x in zip(self._inputs, inputs, strict=True)}
        return self.bind(specs)(context, *inputs)


class BoundChain(CompiledRegion):
    """A chain for the shapes of one plan."""

    def __init__(self, chain: Chain, program: Program) -> None:
        self._chain, self._program = chain, program
        self._shapes = [program.shapes[name] for name in chain._outputs]
        self._calls = [
            (module(program.text, chain._queue.device_id).get_function(call.name), call) for call in program.calls
        ]

    def output_shapes(self, inputs: Sequence[tuple[int, ...] | None]) -> list[tuple[int, ...] | None]:
        return list(self._shapes)

    def workspace(self, inputs: Sequence[tuple[int, ...] | None]) -> int:
        return self._program.workspace

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        outputs = [cupy.empty(s, d) for s, d in zip(self._shapes, self._chain._dtypes, strict=True)]
        self.run_into(context, inputs, outputs)
        return outputs

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        chain, held = self._chain, []
        where = {name: x.data.ptr for name, x in zip(chain._inputs, inputs, strict=True)}
        where.update((name, x.data.ptr) for name, x in chain._tensors.items())
        for name, y, shape, dtype in zip(chain._outputs, outputs, self._shapes, chain._dtypes, strict=True):
            if y is None:  # the plan has no use for it, its kernel writes all the same
                held.append(y := cupy.empty(shape, dtype))
            where[name] = y.data.ptr
        if self._program.places:
            scratch = context.workspace.data.ptr
            where.update((name, scratch + offset) for name, offset in self._program.places.items())
        for function, call in self._calls:
            pointers = [np.uint64(where[name]) for name in call.tensors]
            function(call.grid, (call.block,), (*pointers, *call.scalars))
        return True
