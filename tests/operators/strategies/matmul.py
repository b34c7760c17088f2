"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import numpy_dtype
from operators.case import Case, Draw, strategy
from operators.values import is_float


def matmul_shapes(d: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes that NumPy's matmul takes."""
    m, k, n = d.pick(3, 2, 1, 4, 0), d.pick(4, 3, 1, 5, 0), d.pick(2, 3, 1, 4, 0)
    batch = d.shape(0, 2)
    a, b = (*d.broadcastable(batch), m, k), (*batch, k, n)
    vector = d.pick(0, 0, 1, 2, 3)
    return (k,) if vector & 1 else a, (k,) if vector & 2 else b


@strategy("MatMul")
def matmul(d: Draw) -> Case:
    a, b = matmul_shapes(d)
    return Case([d.tensor(a), d.tensor(b)])


@strategy("Gemm")
def gemm(d: Draw) -> Case:
    m, k, n = d.integer(1, 4), d.integer(1, 5), d.integer(1, 4)
    ta, tb = d.pick(0, 1), d.pick(0, 1)
    a, b = d.tensor((k, m) if ta else (m, k)), d.tensor((n, k) if tb else (k, n))
    whole = is_float(d.element())
    attributes: dict[str, Any] = d.maybe(
        alpha=0.5 if whole else 2.0, beta=d.pick(1.5 if whole else 3.0, 1.0), transA=ta, transB=tb
    )
    attributes |= {name: 1 for name, given in (("transA", ta), ("transB", tb)) if given}
    if d.version < 7:
        shape, broadcast = legacy_broadcast_2d(d, m, n)
        return Case([a, b, d.tensor(shape)], {**attributes, **broadcast})
    c = d.pick((m, n), (n,), (1, n), (m, 1), (), (1,))
    optional = d.version >= 11 and d.flag()
    return Case([a, b, None if optional else d.tensor(c)], attributes)


def legacy_broadcast_2d(d: Draw, m: int, n: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The third input of Gemm before version 7."""
    if d.flag():
        return d.pick((n,), (1, n)) if d.version == 6 else (n,), {"broadcast": 1}
    return (m, n), {}


@strategy("Einsum")
def einsum(d: Draw) -> Case:
    size = {name: d.integer(1, 3) for name in "bijk"}
    equation = d.pick(
        "ij,jk->ik",
        "bij,bjk->bik",
        "ij->ji",
        "ii->i",
        "ij->",
        "i,j->ij",
        "...ij,...jk->...ik",
        "ij,jk",
        "bij,bij->b",
        "ij , ij -> i",
    )
    left = equation.split("->")[0].replace(" ", "").split(",")
    shapes = [tuple(x for name in term.replace("...", "b") for x in (size[name],)) for term in left]
    return Case([d.tensor(shape) for shape in shapes], {"equation": equation})


@strategy("Det")
def det(d: Draw) -> Case:
    n = d.integer(1, 4)
    return Case([d.tensor((*d.shape(0, 2), n, n))])


def zero_point(d: Draw, shape: tuple[int, ...], element: str) -> np.ndarray | None:
    return d.optional(lambda: d.tensor(shape, element, -3, 5))


@strategy("MatMulInteger")
def matmul_integer(d: Draw) -> Case:
    m, k, n = d.integer(1, 4), d.integer(1, 5), d.integer(1, 4)
    a, b = d.element("T1"), d.element("T2")
    batch = d.shape(0, 1)
    a_zero = zero_point(d, () if batch or d.flag() else (m,), a)
    b_zero = zero_point(d, () if batch or d.flag() else (n,), b)
    return Case([d.tensor((*batch, m, k), a, -128, 255), d.tensor((*batch, k, n), b, -128, 255), a_zero, b_zero])


def scale(d: Draw, shape: tuple[int, ...], element: str) -> np.ndarray:
    """Powers of two and others that are exact in half precision, so that no rounding tie is decided by an error."""
    return d.rng.choice([0.25, 0.5, 1.0, 2.0, 0.125], shape).astype(numpy_dtype(element))


@strategy("QLinearMatMul")
def qlinear_matmul(d: Draw) -> Case:
    m, k, n = d.integer(1, 4), d.integer(1, 5), d.integer(1, 4)
    batch = d.shape(0, 1)
    names = [d.element(t) for t in ("T1", "T2", "T3")]
    scale_type = d.element("TS") if d.version >= 21 else "float"
    rows = (*batch, m, 1) if False else ()
    inputs: list[Any] = []
    for name, shape in zip(names[:2], ((*batch, m, k), (*batch, k, n)), strict=True):
        inputs += [d.tensor(shape, name, -100, 200), scale(d, rows, scale_type), d.tensor(rows, name, -3, 5)]
    inputs += [scale(d, (), scale_type) * np.array(8, numpy_dtype(scale_type)), d.tensor((), names[2], -3, 5)]
    return Case([np.asarray(v) for v in inputs])
