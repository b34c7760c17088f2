"""Regions: launches for the shapes that come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, Region, RunContext, TensorSpec, ValueView
from onnxplug_ep_opencl.kernels.call import Owned, Session
from onnxplug_ep_opencl.launch import BoundJob, Job, Ref
from onnxplug_ep_opencl.memory import ClTensor


class DeviceRegion(CompiledRegion):
    """A region for any shapes: ``bind`` writes the launches for those that came."""

    def __init__(self, region: Region, session: Session) -> None:
        self.session, self.inputs, self.outputs = session, list(region.inputs), list(region.outputs)
        self._origin = region.name, region.graph.nodes
        self._weights: dict[tuple[str, Any], ClTensor] = {}

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        if any(value.name not in specs for value in self.inputs):
            return self
        return BoundRegion(self, *self._bound(specs))

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        specs = {value.name: TensorSpec(x.dtype, x.shape) for value, x in zip(self.inputs, inputs, strict=True)}
        bound = BoundRegion(self, *self._bound(specs))
        scratch = self.session.allocator.tensor(np.dtype(np.uint8), (bound.bytes,)) if bound.bytes else None
        return bound(replace(context, workspace=scratch), *inputs)

    def output_shapes(self, inputs: Sequence[tuple[int, ...] | None]) -> list[tuple[int, ...] | None] | None:
        if any(shape is None for shape in inputs):
            return None
        specs = {
            value.name: TensorSpec(value.dtype, shape)
            for value, shape in zip(self.inputs, inputs, strict=True)
            if value.dtype is not None and shape is not None
        }
        shapes = self._shapes(specs)
        return [shapes[value.name] for value in self.outputs]

    def _shapes(self, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[int, ...]]:
        """Shapes of all values, the outputs at least."""
        raise NotImplementedError

    def _bound(self, specs: Mapping[str, TensorSpec]) -> tuple[BoundJob, int, list[tuple[int, ...]]]:
        """The launches, the bytes of scratch memory, the shapes of the outputs."""
        raise NotImplementedError

    def _launched(
        self, job: Job, owned: Owned, shapes: list[tuple[int, ...]]
    ) -> tuple[BoundJob, int, list[tuple[int, ...]]]:
        """What ``_bound`` gives, of a job with the region's operands."""
        room = job.room(len(self.inputs) + len(self.outputs))
        return BoundJob(self.session.queue, job, owned.tensors, self._origin), room, shapes

    def _places(self) -> dict[str, Ref]:
        """Where inputs and outputs are among the operands; the scratch memory follows them."""
        values = [*self.inputs, *self.outputs]
        sizes = [value.dtype.itemsize for value in values if value.dtype is not None]
        return {value.name: Ref(n, size) for n, (value, size) in enumerate(zip(values, sizes, strict=True))}


class BoundRegion(CompiledRegion):
    """A group for the shapes of one plan."""

    def __init__(self, region: DeviceRegion, job: BoundJob, workspace: int, shapes: Sequence[tuple[int, ...]]) -> None:
        self._region, self._job, self.bytes, self._shapes = region, job, workspace, list(shapes)

    def output_shapes(self, inputs: Sequence[tuple[int, ...] | None]) -> list[tuple[int, ...] | None]:
        return list(self._shapes)

    def workspace(self, inputs: Sequence[tuple[int, ...] | None]) -> int:
        return self.bytes

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        outputs = [self._fresh(n) for n in range(len(self._shapes))]
        self.run_into(context, inputs, outputs)
        return outputs

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        written = [self._fresh(n) if y is None else y for n, y in enumerate(outputs)]
        self._job(*inputs, *written, *([context.workspace] if self.bytes else []))
        return True

    def _fresh(self, number: int) -> ClTensor:
        dtype = self._region.outputs[number].dtype
        assert dtype is not None
        return self._region.session.allocator.tensor(dtype, self._shapes[number])


def held(owned: Owned, value: ValueView) -> Ref:
    """A constant, on the device for all plans."""
    array = value.constant
    assert array is not None
    return owned.ref(("constant", value.name), lambda: array)


def spec_of(value: Any, specs: Mapping[str, TensorSpec]) -> TensorSpec:
    """The spec of a constant or of a tensor among ``specs``."""
    constant = value.constant
    return specs[value.name] if constant is None else TensorSpec(constant.dtype, constant.shape, constant)
