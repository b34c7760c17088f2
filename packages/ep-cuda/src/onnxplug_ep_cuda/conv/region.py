"""Regions of convolutions on the device."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import numpy as np

from onnxplug.contract import CompiledRegion, NodeView, Region, RunContext, TensorSpec
from onnxplug_ep_cuda.codegen.bound import module
from onnxplug_ep_cuda.conv.columns import by_columns
from onnxplug_ep_cuda.conv.groups import CONVOLUTIONS
from onnxplug_ep_cuda.conv.problem import nhwc
from onnxplug_ep_cuda.conv.program import EDGE, Convolve, Kernels, Program, channels_last, program
from onnxplug_ep_cuda.dnn import convolution
from onnxplug_ep_cuda.dnn.plans import NoPlan
from onnxplug_ep_cuda.dnn.session import DnnSession
from onnxplug_ep_cuda.namespace import Namespace
from onnxplug_ep_cuda.queue import Queue

log = logging.getLogger("onnxplug.cuda")
_ALIGNMENT = 256


class ConvRegion(CompiledRegion):
    """A region for any shapes, with its constants on the device: weights as KRSC, the rest as NHWC."""

    def __init__(self, region: Region, queue: Queue, session: DnnSession, xp: Namespace) -> None:
        self.region, self.queue, self.session, self.xp = region, queue, session, xp
        self.nodes = list(region.graph.nodes)
        self.inputs = [value.name for value in region.inputs]
        self.outputs = [value.name for value in region.outputs]
        self.dtypes = [value.dtype for value in region.outputs]
        self.constants: dict[str, Any] = {}
        with queue.inside():
            for node in self.nodes:
                for index, value in enumerate(node.inputs):
                    if value is not None and value.constant is not None and value.constant.size:
                        bias = node.op_type in CONVOLUTIONS and index == 2
                        array = value.constant if bias else channels_last(value.constant, self._rank(node))
                        self.constants[value.name] = cupy.asarray(array)
            queue.compute.synchronize()

    @staticmethod
    def _rank(node: NodeView) -> int:
        made = node.outputs[0]
        assert made is not None and made.shape is not None
        return len(made.shape)

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        with self.queue.inside():  # modules are loaded on the device that is current
            return BoundConvRegion(self, specs, program(self.nodes, specs, self.inputs, self.outputs))

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        raise NotImplementedError("a region of convolutions is bound before it runs")


class BoundConvRegion(CompiledRegion):
    """A region for the shapes of one plan. Keeps no state between runs."""

    def __init__(self, region: ConvRegion, specs: Mapping[str, TensorSpec], lowered: Program) -> None:
        self._region, self._program = region, lowered
        self._shapes = [specs[name].shape for name in region.outputs]
        self._dtypes = {name: spec.dtype for name, spec in specs.items()}
        self._steps: list[Any] = []
        scratch = 0
        for step in lowered.steps:
            if isinstance(step, Kernels):
                made = module(step.text, region.queue.device_id)
                self._steps.append([(made.get_function(call.name), call) for call in step.calls])
                continue
            try:
                plan = region.session.convolution(convolution.ConvolutionGraph(step.problem))
            except NoPlan as reason:
                log.warning(
                    "cuDNN has no plan for a convolution of %s, which is columns and cuBLAS: %s", step.x, reason
                )
                plan = None
            scratch = max(scratch, plan.get_workspace_size() if plan is not None else 0)
            self._steps.append((plan, step))
        self._scratch_at = -(-lowered.workspace // _ALIGNMENT) * _ALIGNMENT
        self._workspace = self._scratch_at + scratch

    def output_shapes(self, inputs: Sequence[tuple[int, ...] | None]) -> list[tuple[int, ...] | None]:
        return list(self._shapes)

    def workspace(self, inputs: Sequence[tuple[int, ...] | None]) -> int:
        return self._workspace

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        outputs = [cupy.empty(s, d) for s, d in zip(self._shapes, self._region.dtypes, strict=True)]
        self.run_into(context, inputs, outputs)
        return outputs

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        region, held = self._region, []
        where = {name: x.data.ptr for name, x in region.constants.items()}
        where.update((EDGE + name, x.data.ptr) for name, x in zip(region.inputs, inputs, strict=True))
        for name, y, shape, dtype in zip(region.outputs, outputs, self._shapes, region.dtypes, strict=True):
            if y is None:  # the plan has no use for it, its kernel writes all the same
                held.append(y := cupy.empty(shape, dtype))
            where[EDGE + name] = y.data.ptr
        base = context.workspace.data.ptr if self._workspace else 0
        where.update((name, base + offset) for name, offset in self._program.places.items())
        for step in self._steps:
            if isinstance(step, list):
                for function, call in step:
                    pointers = [np.uint64(where[name]) for name in call.tensors]
                    function(call.grid, (call.block,), (*pointers, *call.scalars))
            elif step[0] is not None:
                plan, conv = step
                region.session.execute(plan, _addresses(conv, where), base + self._scratch_at)
            else:
                self._by_columns(step[1], context.workspace)
        return True

    def _by_columns(self, step: Convolve, workspace: Any) -> None:
        constants, conv = self._region.constants, step.problem

        def view(name: str, shape: tuple[int, ...]) -> Any:
            offset = self._program.places[name]
            return cupy.ndarray(shape, self._dtypes[name], workspace.data + offset)

        residual = None if step.residual is None else view(step.residual, nhwc(conv.y))
        bias = None if step.bias is None else constants[step.bias]
        x = view(step.x, nhwc(conv.x))
        view(step.y, nhwc(conv.y))[...] = by_columns(self._region.xp, conv, x, constants[step.w], bias, residual)


def _addresses(step: Convolve, where: Mapping[str, int]) -> dict[int, int]:
    names = {
        convolution.X: step.x, convolution.W: step.w, convolution.BIAS: step.bias, convolution.RESIDUAL: step.residual,
        convolution.Y: step.y,
    }  # fmt: skip
    return {uid: where[name] for uid, name in names.items() if name is not None}
