"""Attention that is written out as one region: its scores stay in float32, in no tensor of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxplug.contract import Region, TensorSpec
from onnxplug_ep_opencl.fuse.region import DeviceRegion, held
from onnxplug_ep_opencl.kernels.attention import attended
from onnxplug_ep_opencl.kernels.call import Call, Owned, Session
from onnxplug_ep_opencl.launch import BoundJob
from onnxplug_kernel_text.nodes.pattern import described, patterns, result_shape


class AttentionRegion(DeviceRegion):
    """MatMul, Softmax, MatMul and what lies between and around them."""

    def __init__(self, region: Region, session: Session) -> None:
        super().__init__(region, session)
        (self._pattern,) = patterns(region.graph, lambda node: False)

    def _shapes(self, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[int, ...]]:
        return {self._pattern.y.name: result_shape(self._pattern, specs)}

    def _bound(self, specs: Mapping[str, TensorSpec]) -> tuple[BoundJob, int, list[tuple[int, ...]]]:
        session, y, mask = self.session, self._pattern.y, self._pattern.mask
        owned = Owned(session.allocator, session.transfer, self._weights)
        assert y.dtype is not None
        shape = result_shape(self._pattern, specs)
        known: dict[str, Any] = {**specs, y.name: TensorSpec(y.dtype, shape)}
        numbers = {name: place.number for name, place in self._places().items()}
        if mask is not None and mask.constant is not None:
            known[mask.name] = TensorSpec(mask.constant.dtype, mask.constant.shape)
            numbers[mask.name] = held(owned, mask).number
        inputs = [specs[value.name] for value in self.inputs]
        call = Call("Attention", 1, {}, inputs, [known[y.name]], session.target, owned)
        job = attended(call, described(self._pattern, known, numbers))
        return self._launched(job, owned, [shape])
