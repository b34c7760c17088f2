"""A float product between quantized tensors as one region: the product of the integers behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from onnxplug.contract import Region, TensorSpec
from onnxplug_ep_opencl.fuse.region import DeviceRegion, held, spec_of
from onnxplug_ep_opencl.kernels.call import Owned, Session
from onnxplug_ep_opencl.kernels.shared import whole_groups
from onnxplug_ep_opencl.launch import BoundJob, Job
from onnxplug_ep_opencl.shapes import output_specs
from onnxplug_kernel_text.nodes.qdq import lowered, patterns


class QuantizedRegion(DeviceRegion):
    """Conv or MatMul with the DequantizeLinear before it and the QuantizeLinear behind it."""

    def __init__(self, region: Region, session: Session) -> None:
        super().__init__(region, session)
        (self._pattern,) = patterns(region.graph, lambda node: False)

    def _shapes(self, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[int, ...]]:
        return {self._pattern.y.name: self._made(specs).shape}

    def _made(self, specs: Mapping[str, TensorSpec]) -> TensorSpec:
        """The result's spec, which plans know."""
        head, y = self._pattern.head, self._pattern.y
        if y.name in specs:
            return specs[y.name]
        factors = (spec_of(self._pattern.values[n], specs) for n in (0, 3))
        floats = [TensorSpec(np.dtype(np.float32), factor.shape) for factor in factors]
        (found,) = output_specs(head, [*floats, *[None] * (len(head.inputs) - 2)])
        assert found is not None and y.dtype is not None
        return TensorSpec(y.dtype, found.shape)

    def _bound(self, specs: Mapping[str, TensorSpec]) -> tuple[BoundJob, int, list[tuple[int, ...]]]:
        session, y = self.session, self._pattern.y
        made = self._made(specs)
        owned = Owned(session.allocator, session.transfer, self._weights)
        places, operands = self._places(), [*self._pattern.values, y]
        if 0 in made.shape:
            return BoundJob(session.queue, Job()), 0, [made.shape]
        where = {
            n: held(owned, v) if v.constant is not None else places[v.name]
            for n, v in enumerate(operands)
            if v is not None
        }
        known = {v.name: spec_of(v, {**specs, y.name: made}) for v in operands if v is not None}
        job = whole_groups(session.target, self._pattern.head.op_type, lowered(self._pattern, known))
        launches = [
            replace(launch, tensors=[replace(where[ref.number], offset=ref.offset) for ref in launch.tensors])
            for launch in job.launches
        ]
        return BoundJob(session.queue, Job(launches, job.workspace), owned.tensors), job.workspace, [made.shape]
