"""Regions of operands whose shapes no plan knows, because data decides them or too many shapes come to plan for each.

What depends on the shapes is found once for each that comes: the region bound to them, its workspace, and the arrays its function
writes. A call then is a look at the operands' shapes, the arrays made, and the function.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.claims import CompiledRegion, RunContext
from onnxplug.contract.memory import HOST
from onnxplug.contract.types import TensorType
from onnxplug.place.units import RegionUnit
from onnxplug.run.calls import Call, Get, Wanted, all_of, fitting
from onnxplug.run.lender import Made
from onnxplug.run.memory import Block, DeviceArray
from onnxplug.run.rows import shapes_of

if TYPE_CHECKING:
    from onnxplug.run.runtime import Runtime

LATEST = 4
"""Shapes for which a frame keeps what runs them, at least."""
NODES = 256
"""Nodes of all that is kept for the shapes of a small region: it costs little, and those of the parts of an image, which a loop cuts out
one by one, come again."""
SMALL = 1 << 18
"""Bytes up to which a workspace is kept."""
RESULTS = 32 << 20
"""Bytes that the results of all kept shapes may have, beyond ``LATEST``: what regions keep for a shape, as tables with a number for each
place of an image, is as large as these."""

_SHAPE = attrgetter("shape")

Given = Sequence[Any]
"""Memory for each output, None where there is none in particular."""
Way = Callable[[Sequence[Any], Given], Sequence[Any]]
"""Operands -> what a region makes of them, each as its output has to be."""


class Unplanned:
    """The region of one step of a frame, for the shapes that come. Used by one thread at a time. ``wanted``: what its outputs are by
    the graph."""

    def __init__(
        self, unit: RegionUnit, runtime: Runtime, context: RunContext, wanted: Sequence[Wanted | None]
    ) -> None:
        self._unit, self._runtime, self._context, self._wanted = unit, runtime, context, wanted
        self._hosted = sorted(unit.compiled.shape_inputs)
        self._most = max(LATEST, NODES // len(unit.nodes))
        self._latest: OrderedDict[Any, Way] = OrderedDict()
        self._sizes: deque[int] = deque()
        """Bytes of the results for each of these."""
        self._scratch: Block | None = None
        """Where the workspaces of all shapes lie, one of which is run at a time."""

    def step(self, get: Get, values: list[Any], outs: Sequence[int | None], placed: Mapping[int, Any]) -> Call:
        """A run of the region on what ``get`` takes of ``values``, and its results put there; in the memory ``placed`` has for a slot,
        where that fits."""
        ways, look_up, out = self._latest, self._look_up, outs[0] if len(outs) == 1 else None

        def given() -> Given:
            return [None if number is None else placed.get(number) for number in outs] if placed else ()

        def one() -> None:
            inputs = get(values)
            way = ways.get(tuple(map(_SHAPE, inputs)))
            values[out] = (look_up(inputs) if way is None else way)(inputs, given())[0]  # type: ignore[index]

        def many() -> None:
            inputs = get(values)
            way = ways.get(tuple(map(_SHAPE, inputs))) if by_shapes else None
            for number, result in zip(outs, (way or look_up(inputs))(inputs, given()), strict=True):
                if number is not None:
                    values[number] = result

        by_shapes = not self._hosted and all(v and isinstance(v[0].type, TensorType) for v in self._unit.ins)
        return many if out is None or not by_shapes else one

    def _look_up(self, inputs: Sequence[Any]) -> Way:
        """What runs these operands."""
        shapes = shapes_of(inputs)
        key: Any = (shapes, *[inputs[i].tobytes() for i in self._hosted]) if self._hosted else shapes
        return self._latest.get(key) or self._bind(key, shapes, inputs)

    def _bind(self, key: Any, shapes: Any, inputs: Sequence[Any]) -> Way:
        compiled = self._runtime.bind_region(self._unit, key, inputs)
        nbytes = compiled.workspace(shapes)
        context, scratch = self._context, None
        if nbytes > 0:
            scratch = self._workspace(nbytes)
            context = replace(context, workspace=scratch.native)
        writes = compiled.function() is not None or type(compiled).run_into is not CompiledRegion.run_into
        found = compiled.output_shapes(shapes) if writes else None
        makes = self._makes(found)
        returning = self._returning(compiled, context, scratch)
        way = returning if makes is None else self._writing(compiled, context, makes, returning)
        if nbytes <= SMALL:
            self._keep(key, way, found)
        return way

    def _keep(self, key: Any, way: Way, found: Sequence[Any] | None) -> None:
        """Keep what runs some shapes; ``found``: those of its results, as far as they are known."""
        pairs = zip(found or (), self._wanted, strict=False)
        self._latest[key] = way
        self._sizes.append(sum(math.prod(s) * w.dtype.itemsize for s, w in pairs if s is not None and w is not None))
        while len(self._latest) > LATEST and (len(self._latest) > self._most or sum(self._sizes) > RESULTS):
            self._latest.popitem(last=False)
            self._sizes.popleft()

    def _workspace(self, nbytes: int) -> DeviceArray:
        memory, block = self._runtime.memories[self._unit.provider.device], self._scratch
        if nbytes > SMALL:
            return memory.empty(np.dtype(np.uint8), (nbytes,))
        if block is None or block.buffer.nbytes < nbytes:
            block = self._scratch = memory.empty(np.dtype(np.uint8), (1 << (nbytes - 1).bit_length(),)).block
            assert block is not None
        return DeviceArray(memory, memory.view(block.buffer, 0, np.dtype(np.uint8), (nbytes,)), block)

    def _makes(self, found: Sequence[Any] | None) -> list[Made] | None:
        """How arrays for results of these shapes are made, where they are what outputs have to be."""
        if found is None or self._unit.provider.device != HOST:
            return None
        makes: list[Made] = []
        for at, (shape, wanted) in enumerate(zip(found, self._wanted, strict=True)):
            if shape is None or wanted is None or wanted.shape not in (None, tuple(shape)):
                return None
            makes.append((at, np.empty, tuple(shape), wanted.dtype))
        lender = self._runtime.memories.lender
        return makes if lender is None else lender.serves(makes)

    def _returning(self, compiled: CompiledRegion, context: RunContext, scratch: Any) -> Way:
        """The region called; ``scratch`` keeps its workspace alive."""
        wanted = self._wanted

        def way(inputs: Sequence[Any], given: Given, scratch: Any = scratch) -> Sequence[Any]:
            return list(map(fitting, all_of(compiled(context, *inputs), wanted), wanted))

        return way

    @staticmethod
    def _writing(compiled: CompiledRegion, context: RunContext, makes: Sequence[Made], returning: Way) -> Way:
        """The region writing into fresh arrays, or those given; called where it has no such form."""
        function, watched, workspace = compiled.function(), context.watch, context.workspace

        def written(inputs: Sequence[Any], made: Sequence[Any]) -> bool:
            if function is not None and watched() is None and function(workspace, *inputs, *made):
                return True
            return compiled.run_into(context, inputs, made)

        def only(inputs: Sequence[Any], given: Given) -> Sequence[Any]:
            if given:
                return way(inputs, given)
            made = (first(size, kind),)
            return made if written(inputs, made) else returning(inputs, given)

        def way(inputs: Sequence[Any], given: Given) -> Sequence[Any]:
            made = [
                place if place is not None and place.shape == shape and place.dtype == dtype else empty(shape, dtype)
                for place, (_, empty, shape, dtype) in zip(given or [None] * len(makes), makes, strict=True)
            ]
            return made if written(inputs, made) else returning(inputs, given)

        if len(makes) != 1:
            return way
        _, first, size, kind = makes[0]
        return only
