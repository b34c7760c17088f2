"""Memory that a caller gives for results: whether a run may write there at once, rather than have what it made copied.

It may where the memory is nobody else's, or all of it one input's, which the plan then has to allow. Memory that lies otherwise, on parts
of inputs or of other results, gets a copy when the run is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from onnxplug.plan.steps import Plan, Slot

WORTH = 1 << 16
"""Bytes of all results from which on a copy takes longer than to find out that none is needed."""


class Place(NamedTuple):
    """Memory for one result, row-major; ``over``: the input, by number, whose memory it is."""

    array: np.ndarray
    over: int | None

    def fits(self, slot: Slot) -> bool:
        """Whether a result is of this type and, as far as its shape is known, of this shape."""
        dtype = None if slot.value is None else slot.value.dtype
        return self.array.dtype == dtype and (slot.spec is None or slot.spec.shape == self.array.shape)


Places = Mapping[int, Place]
"""By number of the graph's output."""


def are_worth(given: Iterable[Any]) -> bool:
    """Whether to look for places in memory given for results."""
    nbytes = 0
    for array in given:
        nbytes += array.nbytes if _is_memory(array) else 0
    return nbytes >= WORTH


def places_for(inputs: Sequence[Any], given: Mapping[int, Any], constant: Sequence[Any]) -> Places | None:
    """The places among the arrays ``given`` for results, None where there are none. ``constant``: the caller's memory that runs read
    beside their inputs."""
    arrays = {at: array for at, array in given.items() if _is_memory(array)}
    if any(x is not None and x.__class__ is not np.ndarray for x in inputs):  # what a sequence shows is not looked for
        return None
    spans: list[_Spanned] = [(*_span(x), number, None) for number, x in enumerate(inputs) if x is not None and x.size]
    spans += [(*_span(x), None, None) for x in constant if x.__class__ is np.ndarray and x.size]
    spans += [(*_span(array), None, at) for at, array in arrays.items()]
    found = {}
    for group in _touching(spans):
        places = [at for *_, at in group if at is not None]
        if len(places) != 1 or len(group) > 2:
            continue
        array, over = arrays[places[0]], next((number for *_, number, _ in group if number is not None), None)
        if array.flags.carray and (len(group) == 1 or (over is not None and _alike(inputs[over], array))):
            found[places[0]] = Place(array, over)
    return found or None


def _is_memory(value: Any) -> bool:
    return value.__class__ is np.ndarray and not value.dtype.hasobject


def taken(places: Places, plan: Plan) -> Iterator[tuple[int, np.ndarray]]:
    """The places that a run of this plan may write to, by slot."""
    for at, place in places.items():
        sources, slot = plan.placeable.get(at), plan.slots[plan.outputs[at]]
        if sources is not None and (place.over is None or plan.inputs[place.over] in sources) and place.fits(slot):
            yield slot.number, place.array


_Spanned = tuple[int, int, int | None, int | None]
"""First byte and end of what belongs to an input or is given for a result, by number."""


def _touching(spans: list[_Spanned]) -> Iterator[list[_Spanned]]:
    """The spans in groups of which none has a byte in common with another."""
    group: list[_Spanned] = []
    end = 0
    for span in sorted(spans, key=lambda each: each[:2]):
        if group and span[0] >= end:
            yield group
            group = []
        group.append(span)
        end = max(end, span[1])
    if group:
        yield group


def _span(array: np.ndarray) -> tuple[int, int]:
    first: int = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return first, first + array.nbytes
    steps = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    return first + sum(s for s in steps if s < 0), first + sum(s for s in steps if s > 0) + array.itemsize


def _alike(x: np.ndarray, array: np.ndarray) -> bool:
    """Whether two arrays that touch are one."""
    same = x.__array_interface__["data"][0] == array.__array_interface__["data"][0]
    return same and x.shape == array.shape and x.dtype == array.dtype and bool(x.flags.c_contiguous)
