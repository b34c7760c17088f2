"""Regions of operands whose shapes no plan knows, because data decides them or too many shapes come to plan for each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.claims import CompiledRegion, RunContext
from onnxplug.place.units import RegionUnit
from onnxplug.run.memory import DeviceArray

if TYPE_CHECKING:
    from onnxplug.run.runtime import Runtime

LATEST = 4
"""Shapes of which a frame keeps region and workspace."""
SMALL = 1 << 18
"""Bytes up to which a workspace is kept."""

_SHAPE = attrgetter("shape")

Ready = tuple[CompiledRegion, RunContext, DeviceArray | None]
"""A region, what it runs with, and what keeps its workspace alive."""


class Unplanned:
    """The region of one step of a frame, for the shapes that come. Used by one thread at a time."""

    def __init__(self, unit: RegionUnit, runtime: Runtime, context: RunContext) -> None:
        self._unit, self._runtime, self._context = unit, runtime, context
        self._hosted = sorted(unit.compiled.shape_inputs)
        self._latest: OrderedDict[Any, Ready] = OrderedDict()

    def __call__(self, inputs: Sequence[Any]) -> Ready:
        """Ready for these operands."""
        try:
            shapes = tuple(map(_SHAPE, inputs))
        except AttributeError:
            shapes = tuple([getattr(x, "shape", None) for x in inputs])
        key: Any = (shapes, *[inputs[i].tobytes() for i in self._hosted]) if self._hosted else shapes
        ready = self._latest.get(key)
        if ready is None:
            ready = self._bind(key, shapes, inputs)
        return ready

    def _bind(self, key: Any, shapes: Any, inputs: Sequence[Any]) -> Ready:
        compiled = self._runtime.bind_region(self._unit, key, inputs)
        nbytes = compiled.workspace(shapes)
        if nbytes <= 0:
            ready: Ready = compiled, self._context, None
        else:
            scratch = self._runtime.memories[self._unit.provider.device].empty(np.dtype(np.uint8), (nbytes,))
            ready = compiled, replace(self._context, workspace=scratch.native), scratch
        if nbytes <= SMALL:
            self._latest[key] = ready
            if len(self._latest) > LATEST:
                self._latest.popitem(last=False)
        return ready
