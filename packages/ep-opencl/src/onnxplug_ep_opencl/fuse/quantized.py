"""A float product between quantized tensors as one region: the product of the integers behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxplug.contract import Region, TensorSpec
from onnxplug_ep_opencl.fuse.region import DeviceRegion, held, spec_of
from onnxplug_ep_opencl.kernels.call import Call, Owned, Session
from onnxplug_ep_opencl.kernels.integer_tiles import kept
from onnxplug_ep_opencl.kernels.quantized import product
from onnxplug_ep_opencl.launch import BoundJob, Job, Ref
from onnxplug_ep_opencl.shapes import CONVOLUTIONS, output_specs, require_windows
from onnxplug_kernel_text.nodes.qdq import multiplication, patterns


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
        session, head, y = self.session, self._pattern.head, self._pattern.y
        made = self._made(specs)
        if head.op_type in CONVOLUTIONS:
            require_windows(spec_of(self._pattern.values[0], specs).shape, made.shape)
        if 0 in made.shape:
            return BoundJob(session.queue, Job()), 0, [made.shape]
        owned = Owned(session.allocator, session.transfer, self._weights)
        inputs = [None if v is None else spec_of(v, specs) for v in self._pattern.values]
        call = Call(
            f"QLinear{head.op_type}", 10, head.attributes, inputs, [made], session.target, owned, self._packed(inputs)
        )
        job = product(call, multiplication(self._pattern, call))
        operands, places = [*self._pattern.values, y], self._places()

        def where(ref: Ref) -> Ref:
            """A reference to an operand of the call, as one of the region's."""
            if ref.number < 0:
                return ref
            if ref.number == len(operands):
                return replace(ref, number=len(self.inputs) + len(self.outputs))
            value = operands[ref.number]
            assert value is not None
            found = held(owned, value) if value.constant is not None else places[value.name]
            return replace(found, offset=ref.offset)

        launches = [replace(launch, tensors=[where(ref) for ref in launch.tensors]) for launch in job.launches]
        return self._launched(Job(launches, job.workspace), owned, [made.shape])

    def _packed(self, inputs: Sequence[TensorSpec | None]) -> tuple[int, ...]:
        """The weights and their zero point, where the kernel keeps them in a form of its own."""
        weights, zero = inputs[3], inputs[5]
        if weights is None or weights.constant is None:
            return ()
        if not kept(self.session.target, weights.constant, convolution=self._pattern.head.op_type == "Conv"):
            return ()
        return (3,) if zero is None else (3, 5)
