"""Regions of element-wise groups: one, or all that a Concat joins, each of which then writes its part of the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnxplug.contract import NodeView, Region, TensorSpec, ValueView
from onnxplug_ep_opencl.fuse.groups import HEADS, members
from onnxplug_ep_opencl.fuse.lower import Group, lower
from onnxplug_ep_opencl.fuse.region import DeviceRegion, held, spec_of
from onnxplug_ep_opencl.kernels import product, window
from onnxplug_ep_opencl.kernels.call import Call, Owned, Session
from onnxplug_ep_opencl.kernels.elementwise import copy
from onnxplug_ep_opencl.kernels.product import Product, Side
from onnxplug_ep_opencl.launch import BoundJob, Job, Launch, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT, ClTensor
from onnxplug_ep_opencl.shapes import output_specs
from onnxplug_kernel_text.layout import dense
from onnxplug_kernel_text.nodes.chains import output_shapes

_PRODUCTS = {"Conv": window.as_product, "MatMul": product.matmul, "Gemm": product.gemm}
_PACKS = {"Conv": window.packs, "MatMul": product.packs, "Gemm": product.packs}


class Member:
    """A group of element-wise nodes, behind a product perhaps, or a product alone."""

    def __init__(self, nodes: Sequence[NodeView], outputs: Sequence[ValueView], session: Session) -> None:
        self._session, self._outputs = session, [value.name for value in outputs]
        self._weights: dict[tuple[str, Any], ClTensor] = {}
        self._head = next((node for node in nodes if node.op_type in HEADS), None)
        self._nodes = [node for node in nodes if node is not self._head]
        read = {id(v): v for node in self._nodes for v in node.inputs if v is not None and v.constant is not None}
        self._constants = {value.name: value for value in read.values()}
        arrays = ((name, value.constant) for name, value in self._constants.items())
        self._literals = {
            n: array.reshape(-1)[0].item() for n, array in arrays if array is not None and array.size == 1
        }

    def shapes(self, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[int, ...]]:
        """Shapes of all values, from the specs of those that come from elsewhere."""
        given = {name: spec.shape for name, spec in specs.items()}
        given |= {name: value.constant.shape for name, value in self._constants.items() if value.constant is not None}
        if self._head is not None:
            made = self._head.outputs[0]
            assert made is not None
            given[made.name] = self._head_spec(self._head, specs).shape
        return output_shapes(self._nodes, given)

    def job(
        self,
        specs: Mapping[str, TensorSpec],
        shapes: Mapping[str, tuple[int, ...]],
        places: Mapping[str, Ref],
        workspace: Ref,
        owned: Owned,
    ) -> Job:
        """The launches; ``places`` says where inputs and outputs are, ``workspace`` where its own memory begins, in bytes."""
        places, owned = dict(places), owned.part(self._weights)
        for name, value in self._constants.items():
            if name not in self._literals:
                places[name] = held(owned, value)
        head = None if self._head is None else self._product(self._head, specs, places, owned)
        group = Group(self._nodes, shapes, self._literals, places, self._outputs, head, workspace)
        return lower(self._session.target, group)

    def _head_spec(self, head: NodeView, specs: Mapping[str, TensorSpec]) -> TensorSpec:
        made = head.outputs[0]
        assert made is not None
        if made.name in specs:
            return specs[made.name]
        (found,) = output_specs(head, [None if v is None else spec_of(v, specs) for v in head.inputs])
        assert found is not None
        return found

    def _product(
        self, head: NodeView, specs: Mapping[str, TensorSpec], places: Mapping[str, Ref], owned: Owned
    ) -> tuple[str, Product]:
        """The head with its operands where the region has them; what it writes is placed later."""
        made = head.outputs[0]
        assert made is not None
        packed = _PACKS[head.op_type](head, self._session.target)
        inputs = [None if v is None else spec_of(v, specs) for v in head.inputs]
        call = Call(
            head.op_type, head.since_version, head.attributes, inputs, [self._head_spec(head, specs)],
            self._session.target, owned, packed, tuner=self._session.tuner,
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


class FusedRegion(DeviceRegion):
    """One group."""

    def __init__(self, region: Region, session: Session) -> None:
        super().__init__(region, session)
        self._member = Member(region.graph.nodes, self.outputs, session)

    def _shapes(self, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[int, ...]]:
        return self._member.shapes(specs)

    def _bound(self, specs: Mapping[str, TensorSpec]) -> tuple[BoundJob, int, list[tuple[int, ...]]]:
        shapes, session = self._shapes(specs), self.session
        owned = Owned(session.allocator, session.transfer, self._weights)
        places, workspace = self._places(), Ref(len(self.inputs) + len(self.outputs), 1)
        job = self._member.job(specs, shapes, places, workspace, owned)
        return self._launched(job, owned, [shapes[v.name] for v in self.outputs])


class JoinedRegion(DeviceRegion):
    """A Concat, and those groups whose results nobody else reads: these write to where the Concat has them, where that is one run of
    elements; other operands are copied."""

    def __init__(self, region: Region, session: Session) -> None:
        super().__init__(region, session)
        self._concat = region.graph.nodes[-1]
        self._members = {
            value.name: Member(nodes, [value], session) for value, nodes in members(self._concat, region.graph.nodes)
        }

    def _shapes(self, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[int, ...]]:
        shapes = {name: spec.shape for name, spec in specs.items()}
        for name, member in self._members.items():
            shapes[name] = member.shapes(specs)[name]
        joined = [_spec(value, shapes) for value in self._concat.inputs if value is not None]
        (made,) = output_specs(self._concat, joined)
        assert made is not None
        return {**shapes, self.outputs[0].name: made.shape}

    def _bound(self, specs: Mapping[str, TensorSpec]) -> tuple[BoundJob, int, list[tuple[int, ...]]]:
        shapes, session = self._shapes(specs), self.session
        owned = Owned(session.allocator, session.transfer, self._weights)
        places, scratch = self._places(), len(self.inputs) + len(self.outputs)
        target = places[self.outputs[0].name]
        out = shapes[self.outputs[0].name]
        axis = self._concat.attributes.get("axis", 1) % len(out)
        run, strides = math.prod(out[:axis]) == 1, dense(out)
        launches: list[Launch] = []
        at = kept = beside = 0
        copies: list[Launch] = []
        for value in self._concat.inputs:
            assert value is not None
            shape, place = _spec(value, shapes).shape, replace(target, offset=at * strides[axis])
            at += shape[axis]
            if value.name in self._members and not run:  # whole first, then its parts
                places[value.name] = Ref(scratch, target.size, kept // target.size)
                kept += -(-math.prod(shape) * target.size // ALIGNMENT) * ALIGNMENT
            elif value.name in self._members:
                places[value.name] = place
                continue
            elif value.constant is not None:
                places[value.name] = held(owned, value)
            copies += copy(session.target, "Concat", places[value.name], place, shape, (dense(shape), strides))
        for member in self._members.values():
            job = member.job(specs, member.shapes(specs), places, Ref(scratch, 1, kept), owned)
            launches += job.launches
            beside = max(beside, job.workspace)
        return self._launched(Job([*launches, *copies], kept + beside), owned, [out])


def _spec(value: ValueView, shapes: Mapping[str, tuple[int, ...]]) -> TensorSpec:
    """The spec of a constant or of a tensor among ``shapes``."""
    assert value.dtype is not None
    return TensorSpec(value.dtype, shapes[value.name] if value.constant is None else value.constant.shape)
