"""The different elements of vectors, against NumPy's own function."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug_kernels.distinct import distinct, distinct_values, occurrences, row_keys


@pytest.mark.parametrize("values", [[], [3], [2, 2, 2], [5, -1, 5, 0, -1, 7], [0.5, -0.0, 0.0, -3.0, 0.5]])
def test_elements_and_where_each_is_first(values: list[float]) -> None:
    given = np.array(values, np.float64)
    for mine, wanted in zip(distinct(given), np.unique(given, return_index=True), strict=True):
        np.testing.assert_array_equal(mine, wanted)
        assert mine.dtype == wanted.dtype


def values(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Few different elements, the type's extremes and, of floats, both zeros, infinities and NaN among them."""
    rng = np.random.default_rng(seed)
    if kind == "?":
        return rng.random(shape) < 0.5
    x = rng.integers(0, 4, shape).astype(kind)
    limits = np.finfo(kind) if x.dtype.kind == "f" else np.iinfo(kind)
    special = [limits.min, limits.max, *([-0.0, np.inf, -np.inf, np.nan, -np.nan, -1.5] if x.dtype.kind == "f" else [])]
    return np.where(rng.random(shape) < 0.5, x, rng.choice(np.array(special, kind), shape))


KINDS = ["?", "i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 2, 50, 700])
def test_occurrences(kind: str, count: int) -> None:
    given = values(kind, (count,), count)
    wanted, *counted = np.unique(given, return_index=True, return_inverse=True, return_counts=True)
    for mine, theirs in zip(occurrences(given), counted, strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)
    mine = distinct_values(given)
    np.testing.assert_array_equal(mine, wanted, strict=True)
    if given.dtype.kind == "f":  # a zero has the sign of the first one
        real = mine == mine
        np.testing.assert_array_equal(np.signbit(mine[real]), np.signbit(given[counted[0]][real]))


@pytest.mark.parametrize("count", [0, 1, 60, 700])
def test_occurrences_of_texts(count: int) -> None:
    given = np.random.default_rng(count).integers(0, 5, count).astype(str).astype(object)
    _, *counted = np.unique(given, return_index=True, return_inverse=True, return_counts=True)
    for mine, theirs in zip(occurrences(given), counted, strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (30, 2), (30, 3), (400, 2), (20, 2, 20), (5, 0)])
def test_keys_of_rows(kind: str, shape: tuple[int, ...]) -> None:
    """They compare as the rows' elements do, one after the other."""
    given = values(kind, shape, len(shape))
    ranks = np.unique(given, return_inverse=True)[1].reshape(len(given), -1 if given.size else 0)
    order = sorted(range(len(given)), key=lambda row: ranks[row].tolist())
    keys = row_keys(given)
    assert keys.shape == (len(given),)
    assert np.argsort(keys, kind="stable").tolist() == order
    assert len(set(keys.tolist())) == len({tuple(row) for row in ranks.tolist()})
