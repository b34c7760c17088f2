"""Regions of operands whose shapes no plan knows, because data decides them or too many shapes come to plan for each.

What depends on the shapes is found once for each that comes: the region bound to them, its workspace, and the arrays its function
writes. A call then is a look at the operands' shapes, the arrays made, and the function.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
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
from onnxplug.run.rows import shapes_of

if TYPE_CHECKING:
    from onnxplug.run.runtime import Runtime

LATEST = 4
"""Shapes for which a frame keeps what runs them."""
SMALL = 1 << 18
"""Bytes up to which a workspace is kept."""

_SHAPE = attrgetter("shape")

Way = Callable[[Sequence[Any]], Sequence[Any]]
"""Operands -> what a region makes of them, each as its output has to be."""


class Unplanned:
    """The region of one step of a frame, for the shapes that come. Used by one thread at a time. ``wanted``: what its outputs are by
    the graph."""

    def __init__(
        self, unit: RegionUnit, runtime: Runtime, context: RunContext, wanted: Sequence[Wanted | None]
    ) -> None:
        self._unit, self._runtime, self._context, self._wanted = unit, runtime, context, wanted
        self._hosted = sorted(unit.compiled.shape_inputs)
        self._latest: OrderedDict[Any, Way] = OrderedDict()

    def step(self, get: Get, values: list[Any], outs: Sequence[int | None]) -> Call:
        """A run of the region on what ``get`` takes of ``values``, and its results put there."""
        ways, look_up, out = self._latest, self._look_up, outs[0] if len(outs) == 1 else None

        def one() -> None:
            inputs = get(values)
            way = ways.get(tuple(map(_SHAPE, inputs)))
            values[out] = (look_up(inputs) if way is None else way)(inputs)[0]  # type: ignore[index]

        def many() -> None:
            inputs = get(values)
            way = ways.get(tuple(map(_SHAPE, inputs))) if by_shapes else None
            for number, result in zip(outs, (way or look_up(inputs))(inputs), strict=True):
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
        if nbytes <= 0:
            way = self._returning(compiled, self._context, None)
        else:
            scratch = self._runtime.memories[self._unit.provider.device].empty(np.dtype(np.uint8), (nbytes,))
            context = replace(self._context, workspace=scratch.native)
            way = self._writing(compiled, context, shapes, scratch) or self._returning(compiled, context, scratch)
        if nbytes <= SMALL:
            self._latest[key] = way
            if len(self._latest) > LATEST:
                self._latest.popitem(last=False)
        return way

    def _returning(self, compiled: CompiledRegion, context: RunContext, scratch: Any) -> Way:
        """The region called; ``scratch`` keeps its workspace alive."""
        wanted = self._wanted

        def way(inputs: Sequence[Any], scratch: Any = scratch) -> Sequence[Any]:
            return list(map(fitting, all_of(compiled(context, *inputs), wanted), wanted))

        return way

    def _writing(self, compiled: CompiledRegion, context: RunContext, shapes: Any, scratch: Any) -> Way | None:
        """The region's function on fresh arrays, where it has one and they are what outputs have to be."""
        function, found = compiled.function(), compiled.output_shapes(shapes)
        if function is None or found is None or self._unit.provider.device != HOST:
            return None
        makes: list[Made] = []
        for at, (shape, wanted) in enumerate(zip(found, self._wanted, strict=True)):
            if shape is None or wanted is None or wanted.shape not in (None, tuple(shape)):
                return None
            makes.append((at, np.empty, tuple(shape), wanted.dtype))
        if (lender := self._runtime.memories.lender) is not None:
            makes = lender.serves(makes)
        watched, workspace = context.watch, context.workspace
        otherwise = self._returning(compiled, context, scratch)

        def only(inputs: Sequence[Any]) -> Sequence[Any]:
            made = first(size, dtype)
            return (made,) if watched() is None and function(workspace, *inputs, made) else otherwise(inputs)

        def way(inputs: Sequence[Any]) -> Sequence[Any]:
            made = [empty(shape, dtype) for _, empty, shape, dtype in makes]
            if watched() is None and function(workspace, *inputs, *made):
                return made
            return otherwise(inputs)

        if len(makes) != 1:
            return way
        _, first, size, dtype = makes[0]
        return only
