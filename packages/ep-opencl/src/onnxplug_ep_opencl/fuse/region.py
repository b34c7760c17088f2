"""Regions: launches for the shapes that come, and those of a group of element-wise nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, NodeView, Region, RunContext, TensorSpec, ValueView
from onnxplug_ep_opencl.fuse.groups import HEADS
from onnxplug_ep_opencl.fuse.lower import Group, lower
from onnxplug_ep_opencl.kernels import product, window
from onnxplug_ep_opencl.kernels.call import Call, Owned, Session
from onnxplug_ep_opencl.kernels.product import Product, Side
from onnxplug_ep_opencl.launch import BoundJob, Ref
from onnxplug_ep_opencl.memory import ClTensor
from onnxplug_ep_opencl.shapes import output_specs
from onnxplug_kernel_text.nodes.chains import output_shapes

_PRODUCTS = {"Conv": window.as_product, "MatMul": product.matmul, "Gemm": product.gemm}
_PACKS = {"Conv": window.packs, "MatMul": product.packs, "Gemm": product.packs}


class DeviceRegion(CompiledRegion):
    """A region for any shapes: ``bind`` writes the launches for those that came."""

    def __init__(self, region: Region, session: Session) -> None:
        self.session, self.inputs, self.outputs = session, list(region.inputs), list(region.outputs)
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

    def _places(self) -> dict[str, Ref]:
        """Where inputs and outputs are among the operands; the scratch memory follows them."""
        values = [*self.inputs, *self.outputs]
        sizes = [value.dtype.itemsize for value in values if value.dtype is not None]
        return {value.name: Ref(n, size) for n, (value, size) in enumerate(zip(values, sizes, strict=True))}


class FusedRegion(DeviceRegion):
    """A group of element-wise nodes, behind a product perhaps."""

    def __init__(self, region: Region, session: Session) -> None:
        super().__init__(region, session)
        self._head = next((node for node in region.graph.nodes if node.op_type in HEADS), None)
        self._nodes = [node for node in region.graph.nodes if node is not self._head]
        read = {id(v): v for node in self._nodes for v in node.inputs if v is not None and v.constant is not None}
        self._constants = {value.name: value for value in read.values()}
        arrays = ((name, value.constant) for name, value in self._constants.items())
        self._literals = {
            n: array.reshape(-1)[0].item() for n, array in arrays if array is not None and array.size == 1
        }

    def _shapes(self, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[int, ...]]:
        given = {value.name: specs[value.name].shape for value in self.inputs}
        given |= {name: value.constant.shape for name, value in self._constants.items() if value.constant is not None}
        if self._head is not None:
            made = self._head.outputs[0]
            assert made is not None
            given[made.name] = self._head_spec(self._head, specs).shape
        return output_shapes(self._nodes, given)

    def _head_spec(self, head: NodeView, specs: Mapping[str, TensorSpec]) -> TensorSpec:
        made = head.outputs[0]
        assert made is not None
        if made.name in specs:
            return specs[made.name]
        (found,) = output_specs(head, [None if v is None else spec_of(v, specs) for v in head.inputs])
        assert found is not None
        return found

    def _bound(self, specs: Mapping[str, TensorSpec]) -> tuple[BoundJob, int, list[tuple[int, ...]]]:
        shapes = self._shapes(specs)
        session = self.session
        owned = Owned(session.allocator, session.transfer, self._weights)
        places = self._places()
        for name, value in self._constants.items():
            if name not in self._literals:
                places[name] = held(owned, value)
        workspace = len(self.inputs) + len(self.outputs)
        head = None if self._head is None else self._product(self._head, specs, places, owned)
        group = Group(self._nodes, shapes, self._literals, places, [v.name for v in self.outputs], head, workspace)
        job = lower(session.target, group)
        return BoundJob(session.queue, job, owned.tensors), job.workspace, [shapes[v.name] for v in self.outputs]

    def _product(
        self, head: NodeView, specs: Mapping[str, TensorSpec], places: Mapping[str, Ref], owned: Owned
    ) -> tuple[str, Product]:
        """The head with its operands where the region has them; what it writes is placed later."""
        made = head.outputs[0]
        assert made is not None
        packed = _PACKS[head.op_type](head, self.session.target)
        inputs = [None if v is None else spec_of(v, specs) for v in head.inputs]
        call = Call(
            head.op_type, head.since_version, head.attributes, inputs, [self._head_spec(head, specs)],
            self.session.target, owned, packed, tuner=self.session.tuner,
        )  # fmt: skip
        found = _PRODUCTS[head.op_type](call)
        assert found is not None
        where: dict[int, Ref] = {}
        for n, value in enumerate(head.inputs):
            if value is not None and n not in packed:
                where[n] = places[value.name] if value.constant is None else held(owned, value)

        def moved(side: Side) -> Side:
            return replace(side, ref=where.get(side.ref.number, side.ref))

        others = [moved(side) for side in found.others]
        return made.name, replace(found, left=moved(found.left), right=moved(found.right), others=others)


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
