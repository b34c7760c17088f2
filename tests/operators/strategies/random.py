"""Random numbers: what is said of them is their type, shape, distribution, and that a seed repeats them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import ELEMENT_CODES, numpy_dtype
from operators.case import Case, Draw, strategy
from operators.values import element_name

SIZE = (2, 2000)
SIGMAS = 6


def near(values: np.ndarray, mean: float, deviation: float) -> None:
    """The mean and spread of a sample are within what chance allows."""
    sample = values.astype(np.float64).ravel()
    error = SIGMAS * deviation / np.sqrt(sample.size)
    assert abs(sample.mean() - mean) <= error + 0.01 * abs(mean), f"mean {sample.mean()}, {mean} expected"
    assert abs(sample.std() - deviation) <= 0.1 * deviation, f"deviation {sample.std()}, {deviation} expected"


def verify(case: Case, first: list[Any], second: list[Any]) -> None:
    """The first runs of two sessions: equal with a seed, different without one, distributed as its attributes say."""
    a, kind = case.attributes, case.key[1]
    (y,), (again,) = first, second
    assert y.dtype == numpy_dtype(element_name(case.types["T" if "T" in case.types else "T2"]))
    repeated = bool((y.astype(np.float64) == again.astype(np.float64)).all())
    assert repeated == ("seed" in a), "a seed repeats the numbers of a session, its absence does not"
    if kind.startswith("RandomNormal"):
        near(y, a.get("mean", 0.0), a.get("scale", 1.0))
    elif kind.startswith("RandomUniform"):
        low, high = a.get("low", 0.0), a.get("high", 1.0)
        values = y.astype(np.float64)
        assert low <= values.min() and values.max() <= high
        near(y, (low + high) / 2, (high - low) / 12**0.5)
    elif kind == "Bernoulli":
        assert y.shape == case.inputs[0].shape
        assert set(np.unique(y.astype(np.float64))) <= {0.0, 1.0}
        near(y, 0.3, (0.3 * 0.7) ** 0.5)
    else:
        assert y.shape == (2, a["sample_size"])
        for row in y:
            near(row == 2, 0.5, 0.5)
            assert set(row.tolist()) <= {1, 2}


def seeded(d: Draw) -> dict[str, Any]:
    return {"seed": d.pick(7.5, 1.0)} if d.pick(True, False) else {}


def parameters(d: Draw) -> dict[str, float]:
    if "Normal" in d.op_type:
        return d.maybe(mean=1.5, scale=2.0)
    return d.maybe(low=-1.0, high=2.0)


@strategy("RandomNormal", "RandomUniform")
def generate(d: Draw) -> Case:
    element = d.element()
    dtype = {} if element == "float" and d.flag() else {"dtype": ELEMENT_CODES[element]}
    return Case([], {"shape": list(SIZE), **dtype, **parameters(d), **seeded(d)}, verify=verify)


@strategy("RandomNormalLike", "RandomUniformLike")
def generate_like(d: Draw) -> Case:
    source = d.element("T1")
    like = d.cell.parameter != "T2" and d.type("T1") in d.allowed("T2") and d.flag()
    if like:
        d.bind("T2", source)
    attributes = {} if like else {"dtype": ELEMENT_CODES[d.element("T2")]}
    return Case([d.tensor(SIZE, source)], {**attributes, **parameters(d), **seeded(d)}, verify=verify)


@strategy("Bernoulli")
def bernoulli(d: Draw) -> Case:
    source = d.element("T1")
    like = d.cell.parameter != "T2" and d.flag()
    if like:
        d.bind("T2", source)
    x = np.full(SIZE, 0.3).astype(numpy_dtype(source))
    return Case([x], {**({} if like else {"dtype": ELEMENT_CODES[d.element("T2")]}), **seeded(d)}, verify=verify)


@strategy("Multinomial")
def multinomial(d: Draw) -> Case:
    chances = np.log(np.array([[1e-30, 0.5, 0.5], [1e-30, 1.0, 1.0]])).astype(numpy_dtype(d.element("T1")))
    target = d.element("T2")
    dtype = {} if target == "int32" and d.flag() else {"dtype": ELEMENT_CODES[target]}
    return Case([chances], {"sample_size": 2000, **dtype, **seeded(d)}, verify=verify)
