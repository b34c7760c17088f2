"""The calls that a frame makes, step by step: operands are fetched by slot, and results put in theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from onnxplug.contract.errors import Misfit
from onnxplug.run.memory import DeviceArray

Call = Callable[[], object]
Get = Callable[[Sequence[Any]], tuple[Any, ...]]


class Wanted(NamedTuple):
    """The dtype and shape that an output in host memory has by the graph; ``shape`` None where the plan does not know it. Those that read
    it rely on both, generated code without a check, so nothing else may get into its slot."""

    dtype: np.dtype
    shape: tuple[int, ...] | None


def choice(numbers: Sequence[int]) -> Get:
    """A function that takes the items at these positions, as a tuple."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    if not numbers:
        return lambda values: ()
    only = numbers[0]
    return lambda values: (values[only],)


def writing(call: Callable[..., object], get: Get, values: list[Any]) -> Call:
    """A call of a kernel that writes into its last operands."""
    return partial(_write, call, get, values)


def _write(call: Callable[..., object], get: Get, values: list[Any]) -> None:
    call(*get(values))


def returning(
    call: Any, values: list[Any], ins: Sequence[int], outs: Sequence[int | None], wanted: Sequence[Wanted | None]
) -> Call:
    """A call of a kernel that returns its results; nothing is known of an output whose ``wanted`` is None."""
    if len(outs) != 1 or outs[0] is None:
        return partial(_call_many, call, choice(ins), values, outs, wanted)
    if len(ins) not in (1, 2):
        return partial(_call_one, call, choice(ins), values, outs[0], wanted[0])
    # one operand or two, which most steps have: in half the time
    first, second, out, only, array = ins[0], ins[-1], outs[0], wanted[0], np.ndarray
    dtype, shape = only if only is not None else (None, None)

    def unary() -> None:
        result = call(values[first])
        if result.__class__ is not array or (
            dtype is not None and (result.dtype is not dtype or (shape is not None and result.shape != shape))
        ):
            result = _only(result, only)
        values[out] = result

    def binary() -> None:
        result = call(values[first], values[second])
        if result.__class__ is not array or (
            dtype is not None and (result.dtype is not dtype or (shape is not None and result.shape != shape))
        ):
            result = _only(result, only)
        values[out] = result

    return unary if len(ins) == 1 else binary


def _call_one(call: Any, get: Get, values: list[Any], out: int, wanted: Wanted | None) -> None:
    values[out] = _only(call(*get(values)), wanted)


def _only(result: Any, wanted: Wanted | None) -> Any:
    """The one output of a kernel."""
    return fitting(_enough(result, 1)[0] if isinstance(result, tuple) else result, wanted)


def _call_many(
    call: Any, get: Get, values: list[Any], outs: Sequence[int | None], wanted: Sequence[Wanted | None]
) -> None:
    results = call(*get(values))
    results = _enough(results if isinstance(results, tuple) else (results,), len(outs))
    for number, result, each in zip(outs, results, wanted, strict=False):
        if number is not None:
            values[number] = fitting(result, each)


def _enough(results: tuple[Any, ...], wanted: int) -> tuple[Any, ...]:
    if len(results) < wanted:
        raise RuntimeError(f"the kernel gave {len(results)} outputs, the node has {wanted}")
    return results


def fitting(result: Any, wanted: Wanted | None) -> Any:
    """The result, if it has the dtype and shape wanted; Misfit otherwise."""
    if isinstance(result, np.generic):
        result = np.asarray(result)
    if wanted is None:
        return result
    if not isinstance(result, np.ndarray):
        raise Misfit(f"it gave {type(result).__name__} for an output that is an array of {wanted.dtype}", sized=False)
    if result.dtype != wanted.dtype or wanted.shape not in (None, result.shape):
        due = wanted.dtype if wanted.shape is None else f"{wanted.dtype}{list(wanted.shape)}"
        given = f"it gave {result.dtype}{list(result.shape)} for an output that is {due}"
        raise Misfit(given, sized=result.dtype == wanted.dtype)
    return result


def take(
    results: Sequence[Any], values: list[Any], outs: Sequence[int | None], wanted: Sequence[Wanted | None]
) -> None:
    """Put what a region returned in its slots."""
    for number, native, each in zip(outs, all_of(results, outs), wanted, strict=True):
        if number is not None:
            values[number] = fitting(native, each)


def all_of(results: Sequence[Any], outs: Sequence[Any]) -> Sequence[Any]:
    """The results, as many as the region has outputs; RuntimeError otherwise."""
    if len(results) != len(outs):
        raise RuntimeError(f"it gave {len(results)} outputs, it has {len(outs)}")
    return results


def overwriting(values: list[Any], target: int, source: int) -> Call:
    """A call that copies within host memory."""
    return partial(_overwrite, values, target, source)


def _overwrite(values: list[Any], target: int, source: int) -> None:
    values[target][...] = values[source]  # a fifth of what ``np.copyto`` takes for a scalar


def dropping(values: list[Any], held: dict[int, DeviceArray], dead: Sequence[int]) -> Call:
    """A call that drops values nobody reads any more."""
    return partial(_drop, values, held, dead)


def _drop(values: list[Any], held: dict[int, DeviceArray], dead: Sequence[int]) -> None:
    for number in dead:
        values[number] = None
        held.pop(number, None)
