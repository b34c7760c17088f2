"""Whether results of operators of random numbers can be what they are said to be drawn from.

Nobody else's numbers are the same, so that means, variances and frequencies are what there is to judge. Each may be ``SIGMAS`` standard
deviations off, which one seed in hundreds of millions exceeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

SIGMAS = 6.0
ENOUGH = 100
"""Numbers of which a variance tells something."""
ROUNDED = 1e-2
"""By how much types of few bits move a number, relative to the largest."""
Attributes = Mapping[str, Any]


def implausible(op_type: str, attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> str:
    """What speaks against results of a node; nothing where nothing does, and of operators that are not judged."""
    judge = _JUDGES.get(op_type)
    with np.errstate(all="ignore"):
        return judge(attributes, operands, [np.asarray(r) for r in results]) if judge is not None else ""


def drops(op_type: str, operands: Sequence[Any]) -> bool:
    """Whether a node of Dropout drops elements at random: its third operand says that it trains."""
    trains = operands[2] if len(operands) > 2 else None
    return op_type == "Dropout" and trains is not None and bool(np.all(trains))


def _uniform(attributes: Attributes, operands: Sequence[Any], results: Sequence[np.ndarray]) -> str:
    low, high = float(attributes.get("low", 0.0)), float(attributes.get("high", 1.0))
    numbers, room = results[0].astype(np.float64), ROUNDED * max(abs(low), abs(high))
    if numbers.size and (numbers.min() < low - room or numbers.max() > high + room):
        return f"numbers from {numbers.min():g} to {numbers.max():g} are given, {low:g} to {high:g} are asked for"
    return _moments(numbers, (low + high) / 2, (high - low) / math.sqrt(12), 1.8)


def _normal(attributes: Attributes, operands: Sequence[Any], results: Sequence[np.ndarray]) -> str:
    mean, deviation = float(attributes.get("mean", 0.0)), float(attributes.get("scale", 1.0))
    return _moments(results[0].astype(np.float64), mean, deviation, 3.0)


def _moments(numbers: np.ndarray, mean: float, deviation: float, kurtosis: float) -> str:
    """Of so many numbers the mean is off by deviation / sqrt(n), the variance by its square times sqrt((kurtosis - 1) / n)."""
    count = numbers.size
    if not count:
        return ""
    if not np.isfinite(numbers).all():
        return "a random number is not finite"
    found = float(numbers.mean())
    if abs(found - mean) > SIGMAS * deviation / math.sqrt(count) + ROUNDED * abs(mean):
        return f"the mean of {count} numbers is {found:g}, {mean:g} is asked for"
    spread = float(numbers.var())
    if count >= ENOUGH and abs(spread / deviation**2 - 1) > SIGMAS * math.sqrt((kurtosis - 1) / count) + ROUNDED:
        return f"the variance of {count} numbers is {spread:g}, {deviation**2:g} is asked for"
    return ""


def _bernoulli(attributes: Attributes, operands: Sequence[Any], results: Sequence[np.ndarray]) -> str:
    chances, lots = operands[0].astype(np.float64), results[0].astype(np.float64)
    if not np.isin(lots, (0, 1)).all():
        return "a lot is neither 0 nor 1"
    return _counted("ones", float(lots.sum()), chances)


def _multinomial(attributes: Attributes, operands: Sequence[Any], results: Sequence[np.ndarray]) -> str:
    weights = np.exp(operands[0].astype(np.float64))
    for chances, lots in zip(weights / weights.sum(1, keepdims=True), results[0], strict=True):
        if lots.size and (lots.min() < 0 or lots.max() >= chances.size):
            return f"class {int(lots.max())} is drawn, there are {chances.size}"
        for number, chance in enumerate(chances):
            said = _counted(f"draws of class {number}", int((lots == number).sum()), np.full(lots.size, chance))
            if said:
                return said
    return ""


def _dropout(attributes: Attributes, operands: Sequence[Any], results: Sequence[np.ndarray]) -> str:
    if not drops("Dropout", operands):
        return ""
    ratio = 0.5 if operands[1] is None else float(operands[1])
    x, y = operands[0].astype(np.float64), results[0].astype(np.float64)
    kept = (y != 0) | (x == 0)
    if not np.allclose(y[kept], x[kept] / (1 - ratio) if ratio < 1 else 0, rtol=ROUNDED):
        return f"what is kept is not divided by 1 - {ratio:g}"
    if len(results) > 1 and not np.array_equal(results[1][x != 0], kept[x != 0]):
        return "the mask does not say what was kept"
    return _counted("elements kept", int(kept[x != 0].sum()), np.full(int((x != 0).sum()), 1 - ratio))


def _counted(what: str, count: float, chances: np.ndarray) -> str:
    """How often something came that had these chances to."""
    due, deviation = float(chances.sum()), math.sqrt(float((chances * (1 - chances)).sum()))
    far = abs(count - due) > SIGMAS * deviation + ROUNDED
    return f"{count:g} {what} of {chances.size}, {due:.1f} are to be expected" if far else ""


_JUDGES: Mapping[str, Callable[[Attributes, Sequence[Any], Sequence[np.ndarray]], str]] = {
    "RandomUniform": _uniform, "RandomUniformLike": _uniform, "RandomNormal": _normal, "RandomNormalLike": _normal,
    "Bernoulli": _bernoulli, "Multinomial": _multinomial, "Dropout": _dropout,
}  # fmt: skip
