"""The calls that a frame makes, step by step: operands are fetched by slot, and results put in theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.run.memory import DeviceArray

if TYPE_CHECKING:
    from onnxplug.run.unplanned import Unplanned

Call = Callable[[], object]
Get = Callable[[Sequence[Any]], tuple[Any, ...]]


def choice(numbers: Sequence[int]) -> Get:
    """What takes the items of these numbers."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    if not numbers:
        return lambda values: ()
    only = numbers[0]
    return lambda values: (values[only],)


def writing(call: Callable[..., object], get: Get, values: list[Any]) -> Call:
    """A kernel that writes into its last operands."""
    return partial(_write, call, get, values)


def _write(call: Callable[..., object], get: Get, values: list[Any]) -> None:
    call(*get(values))


def returning(call: Any, values: list[Any], ins: Sequence[int], outs: Sequence[int | None]) -> Call:
    """A kernel that returns what it makes."""
    if len(outs) != 1 or outs[0] is None:
        return partial(_call_many, call, choice(ins), values, outs)
    if len(ins) not in (1, 2):
        return partial(_call_one, call, choice(ins), values, outs[0])
    # one operand or two, which most steps have: in half the time
    first, second, out, array = ins[0], ins[-1], outs[0], np.ndarray

    def unary() -> None:
        result = call(values[first])
        values[out] = result if result.__class__ is array else _only(result)

    def binary() -> None:
        result = call(values[first], values[second])
        values[out] = result if result.__class__ is array else _only(result)

    return unary if len(ins) == 1 else binary


def _call_one(call: Any, get: Get, values: list[Any], out: int) -> None:
    result = call(*get(values))
    values[out] = result if result.__class__ is np.ndarray else _only(result)


def _only(result: Any) -> Any:
    """The one output of a kernel that gave no array."""
    return _native(_enough(result, 1)[0] if isinstance(result, tuple) else result)


def _call_many(call: Any, get: Get, values: list[Any], outs: Sequence[int | None]) -> None:
    results = call(*get(values))
    results = _enough(results if isinstance(results, tuple) else (results,), len(outs))
    for number, result in zip(outs, results, strict=False):
        if number is not None:
            values[number] = _native(result)


def _enough(results: tuple[Any, ...], wanted: int) -> tuple[Any, ...]:
    if len(results) < wanted:
        raise RuntimeError(f"the kernel gave {len(results)} outputs, the node has {wanted}")
    return results


def _native(result: Any) -> Any:
    return np.asarray(result) if isinstance(result, np.generic) else result


def unplanned(ready: Unplanned, get: Get, values: list[Any], outs: Sequence[int | None], name: str) -> Call:
    """A region whose shapes the plan did not know."""
    return partial(_call_unplanned, ready, get, values, outs, name)


def _call_unplanned(ready: Unplanned, get: Get, values: list[Any], outs: Sequence[int | None], name: str) -> None:
    inputs = get(values)
    compiled, context, scratch = ready(inputs)
    results = compiled(context, *inputs)
    if len(outs) == len(results) == 1 and outs[0] is not None and results[0].__class__ is np.ndarray:
        values[outs[0]] = results[0]
    else:
        take(results, values, outs, name)
    del scratch


def take(results: Sequence[Any], values: list[Any], outs: Sequence[int | None], name: str) -> None:
    """Put what a region returned in its slots."""
    for number, native in zip(outs, all_of(results, outs, name), strict=True):
        if number is not None:
            values[number] = native if native.__class__ is np.ndarray else _native(native)


def all_of(results: Sequence[Any], outs: Sequence[Any], name: str) -> Sequence[Any]:
    """The results, as many as the region has outputs; Fail otherwise."""
    if len(results) != len(outs):
        raise Fail(f"Region {name} gave {len(results)} outputs, it has {len(outs)}")
    return results


def overwriting(values: list[Any], target: int, source: int) -> Call:
    """A copy within the host."""
    return partial(_overwrite, values, target, source)


def _overwrite(values: list[Any], target: int, source: int) -> None:
    values[target][...] = values[source]  # a fifth of what ``np.copyto`` takes for a scalar


def dropping(values: list[Any], held: dict[int, DeviceArray], dead: Sequence[int]) -> Call:
    """Values that nobody reads any more are let go."""
    return partial(_drop, values, held, dead)


def _drop(values: list[Any], held: dict[int, DeviceArray], dead: Sequence[int]) -> None:
    for number in dead:
        values[number] = None
        held.pop(number, None)
