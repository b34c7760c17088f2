"""The plans that a graph keeps, one for each signature of shapes, and a shape-generic one for signatures that do not come again."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.types import TensorType
from onnxplug.place.units import PlacedGraph
from onnxplug.plan.specs import LARGE
from onnxplug.run.calls import choice
from onnxplug.run.planned import Planned, Signature, planned_dtype
from onnxplug.run.planners import Planners
from onnxplug.run.rows import shapes_of

if TYPE_CHECKING:
    from onnxplug.run.runtime import Runtime

MAX_PLANS = 16
"""Plans for one signature of shapes each that a graph keeps; the least recently used is dropped."""
OF_BODY = 128
"""``MAX_PLANS`` of a nested graph: what a loop carries may grow from trip to trip."""


class Plans:
    """Gives the plan for the inputs of a run (graph inputs, then captures), and makes it where there is none. The signature it goes by is
    the shapes of those inputs whose shapes a plan can make use of."""

    def __init__(self, placed: PlacedGraph, runtime: Runtime) -> None:
        self._placed = placed
        self._planners = Planners(placed, runtime)
        self.kept: dict[Signature | None, Planned] = {}
        """By signature; None for the shape-generic one."""
        self._seen: OrderedDict[Signature, int] = OrderedDict()
        self._specialised = self._clock = 0
        self._lock = threading.Lock()
        self.most = MAX_PLANS if placed.graph.parent is None else OF_BODY
        dtypes = [planned_dtype(placed, located) for located in (*placed.inputs, *placed.captures)]
        self._dtypes = [(at, dtype) for at, dtype in enumerate(dtypes) if dtype is not None]
        """Of the inputs whose shapes are the signature."""
        self._tensors = None if len(self._dtypes) == len(dtypes) else choice([at for at, _ in self._dtypes])
        self._inputs = len(dtypes)

    def of(self, inputs: Sequence[Any]) -> Planned:
        """The plan for these inputs, with its frames."""
        return self.of_signature(shapes_of(inputs if self._tensors is None else self._tensors(inputs)))

    def of_shapes(self, shapes: tuple[Any, ...]) -> Planned:
        """The plan for inputs of these shapes (see ``shapes_of``)."""
        return self.of_signature(shapes if self._tensors is None else self._tensors(shapes))

    def of_signature(self, key: Signature) -> Planned:
        """The plan for a signature."""
        planned = self.kept.get(key)
        if planned is None:
            planned = self._make(key)
        self._clock += 1
        planned.used = self._clock
        return planned

    def signed(self, inputs: range) -> Callable[[Sequence[Any]], Signature]:
        """What gives the part of the signature that is of the inputs of these numbers, if it is given these."""
        places = [at - inputs.start for at, _ in self._dtypes if at in inputs]
        if len(places) == len(inputs):
            return shapes_of
        chosen = choice(places)
        return lambda values: shapes_of(chosen(values))

    def prime(self) -> None:
        """Make the plan of the declared shapes, where all of them are numbers, now rather than in the first run. What cannot be
        planned is left for the run to say, as is what may be too large for anybody to feed."""
        located = (*self._placed.inputs, *self._placed.captures)
        types = [located[at][0].type for at, _ in self._dtypes]
        shapes = [t.static_shape for t in types if isinstance(t, TensorType)]
        if all(shape is not None and math.prod(shape) < LARGE for shape in shapes):
            with contextlib.suppress(Exception):
                self._make(tuple(shapes))

    def release(self) -> None:
        """Drop the idle frames of all plans."""
        for planned in list(self.kept.values()):
            planned.pool.clear()
            planned.lanes.clear()

    def placed(self) -> list[PlacedGraph]:
        """All placements of the graph that plans were made of."""
        return list(self._planners.placed())

    def _make(self, key: Signature) -> Planned:
        with self._lock:
            found = self.kept.get(key)
            if found is not None:
                return found
            if not self._deserves_plan(key):
                return self.kept.setdefault(None, self.kept.get(None) or Planned(self._planners.plan(None)))
            specs: list[TensorSpec | None] = [None] * self._inputs
            for (at, dtype), shape in zip(self._dtypes, key, strict=True):
                specs[at] = None if shape is None else TensorSpec(dtype, tuple(shape))
            planned = self.kept[key] = Planned(self._planners.plan(specs))
            self._specialised += 1
            while len(self.kept) > self.most + (None in self.kept):
                oldest = min((k for k in self.kept if k is not None and k != key), key=lambda k: self.kept[k].used)
                del self.kept[oldest]
            return planned

    def _deserves_plan(self, key: Signature) -> bool:
        """Whether a signature gets a plan: the first ones do, later ones when they come for the third time before as many others as there
        are plans did. Those of a growing sequence, which come again with the next one, would have lost their plans by then: they are
        run by the shape-generic plan."""
        if self._specialised < self.most:
            return True
        self._seen[key] = self._seen.pop(key, 0) + 1
        while len(self._seen) > self.most:
            self._seen.popitem(last=False)
        if self._seen[key] < 3:
            return False
        del self._seen[key]
        return True
