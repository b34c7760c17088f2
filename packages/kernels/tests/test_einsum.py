"""Einsum against NumPy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_kernels.einsum import einsum

CASES = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij, kj", (3, 4), (5, 4)),
    ("ba,cA->Aab", (2, 3), (4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("i,j->ij", (3,), (4,)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ii", (4, 4)),
    ("iij->ji", (4, 4, 2)),
    ("iiijj,j->i", (3, 3, 3, 2, 2), (2,)),
    ("...ij,...jk", (2, 3, 4), (4, 5)),
    ("i...,...i->...", (3, 4, 5), (1, 5, 3)),
    ("...ii->...i", (2, 3, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,j,j->ij", (3, 4), (4,), (4,)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    ("ij,kl->", (3, 4), (2, 5)),
    ("...,...->...", (), (2, 3)),
    ("ij,jk->ik", (3, 0), (0, 5)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_einsum(case: tuple[Any, ...]) -> None:
    equation, *shapes = case
    rng = np.random.default_rng(0)
    operands = [rng.normal(size=shape) for shape in shapes]
    got, want = einsum(np, equation, operands), np.einsum(equation, *operands)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    integers = [rng.integers(-5, 6, shape, np.int8) for shape in shapes]
    np.testing.assert_array_equal(einsum(np, equation, integers), np.einsum(equation, *integers))


@pytest.mark.parametrize(
    ("equation", "shape"), [("ij,jk", (2, 2)), ("ijk->i", (2, 2)), ("i->i", (2, 2)), ("i...i->...", (2, 4, 3))]
)
def test_equation_that_does_not_fit(equation: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Einsum"):
        einsum(np, equation, [np.zeros(shape)])
