"""Host values as results that share memory with nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import islice
from operator import is_
from sys import getrefcount
from typing import Any

import numpy as np

from onnxplug.contract.types import SequenceType, TensorType
from onnxplug.plan.steps import Form, Keep, Plan, Slot
from onnxplug.run.lender import shows_loan

_ALONE = 3
"""References to an array that only one other object knows: that object, a name, and who counts."""


def to_own(plan: Plan) -> list[int]:
    """Positions of the results that may show bytes of something else: none where all results of unknown shape are tensors that If, Loop
    and Scan made, which are in memory of their own. Sequences come first: what they hold may be a result too."""
    dynamic = [at for at, number in enumerate(plan.outputs) if plan.slots[number].keep is Keep.DYNAMIC]
    slots = {plan.slots[plan.outputs[at]] for at in dynamic}
    made = {n for step in plan.steps if step.form is Form.CONTROL for n in step.outs}
    own = all(s.number in made and s.value is not None and isinstance(s.value.type, TensorType) for s in slots)
    if own and len(slots) == len(dynamic):
        return []
    return sorted(dynamic, key=lambda at: not _is_sequence(plan.slots[plan.outputs[at]]))


def _is_sequence(slot: Slot) -> bool:
    return slot.value is not None and isinstance(slot.value.type, SequenceType)


def own(value: Any, lasting: Set[int], taken: set[int]) -> Any:
    """A host value as a result that shares memory with nothing: an array that is, or shows, one of ``lasting`` or ``taken`` (by id;
    it joins these), or shows less than there is, is copied."""
    if value.__class__ is not np.ndarray:
        if isinstance(value, list):
            return value.copy() if are_maps(value) else [own(item, lasting, taken) for item in value]
        if not isinstance(value, np.ndarray):
            return value
    base = value.base
    root = value if base is None else _whole(value, base)
    if root is None or (key := id(root)) in taken or key in lasting:
        return value.copy()
    taken.add(key)
    return value


def shows_one_of(value: np.ndarray, given: Iterable[Any]) -> bool:
    """Whether an array is one of these values, an item of one, or a view of either. Where one array is asked about, this takes less
    than the sets that tell it of many."""
    base = value.base
    for other in given:
        if value is other or (base is not None and base is other):
            return True
        if other.__class__ is list and any(value is item or (base is not None and base is item) for item in other):
            return True
    return False


def begun(value: list[Any], given: Iterable[Any]) -> int:
    """With how many items a list begins that one of ``given`` is, as it does where something was put at its end."""
    known = 0
    for other in given:
        if other.__class__ is list and known < len(other) <= len(value) and all(map(is_, value, other)):
            known = len(other)
    return known


def _whole(view: np.ndarray, root: Any) -> np.ndarray | None:
    """The array whose memory a row-major view shows, if it shows all of it."""
    if root.__class__ is not np.ndarray or not view.flags.c_contiguous:
        return None
    shows_all = root.nbytes == view.nbytes if root.base is None else shows_loan(view, root)
    return root if shows_all else None


def are_maps(value: Any) -> bool:
    """Maps hold no arrays, and there may be thousands."""
    return isinstance(value, list) and bool(value) and value[0].__class__ is dict


def shows_alone(view: np.ndarray) -> bool:
    """Whether a row-major view shows all of an array that nobody else knows."""
    root = view.base
    return getrefcount(root) <= _ALONE and _whole(view, root) is not None


def are_alone(values: list[Any], first: int = 0) -> bool:
    """Whether all, from the first on, are arrays that nobody but the list knows, and that show no other's memory."""
    return all(
        value.__class__ is np.ndarray and getrefcount(value) <= _ALONE and (value.base is None or shows_alone(value))
        for value in (islice(values, first, None) if first else values)
    )


def own_items(values: list[Any]) -> list[Any]:
    """The list with copies of items that anybody else knows, or whose memory is another's."""
    made, array = [], np.ndarray
    for value in values:
        if value.__class__ is not array:
            made.append(copy_host(value))
        elif getrefcount(value) > _ALONE or not (value.base is None or shows_alone(value)):
            made.append(value.copy())
        else:
            made.append(value)
    return made


def items_of(value: Any) -> Iterator[Any]:
    """What a sequence holds, what sequences in it hold, and so on."""
    if isinstance(value, list) and not are_maps(value):
        for item in value:
            yield item
            yield from items_of(item)


def copy_host(value: Any) -> Any:
    """A host value that shares no array with the one given."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return [copy_host(item) for item in value] if isinstance(value, list) else value
