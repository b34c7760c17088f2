"""NumPy as the kernels' array namespace. Functions that come down to one method of an array or ufunc call it directly: with small tensors
NumPy's wrappers take longer than the work."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

KEPT = 1024
"""Numbers up to which a list of them is kept: for small tensors, making it takes longer than what it is used for."""


class _NumPy(ModuleType):
    """The names of ``numpy``."""

    def __init__(self) -> None:
        super().__init__("numpy")
        self.__dict__.update(vars(np))
        self.__dict__.update(
            reshape=_reshape, permute_dims=_permute_dims, squeeze=_squeeze, take=_take, concat=np.concatenate,
            cumulative_sum=_cumulative_sum, nonzero=_nonzero, take_along_axis=_take_along_axis,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)  # what NumPy imports when it is first asked for


def _reshape(x: Any, shape: Any) -> Any:
    return x.reshape(shape)


def _permute_dims(x: Any, axes: Sequence[int]) -> Any:
    return x.transpose(axes)


def _squeeze(x: Any, axis: int | tuple[int, ...]) -> Any:
    return x.squeeze(axis)


def _take(x: Any, indices: Any, axis: int | None = None) -> Any:
    return x.take(indices, axis)


def _take_along_axis(x: Any, indices: Any, axis: int = -1) -> Any:
    own = axis % x.ndim
    return x[tuple(indices if i == own else _numbers(n, x.ndim - i - 1) for i, n in enumerate(x.shape))]


@functools.lru_cache(maxsize=256)
def _kept_numbers(n: int, behind: int) -> Any:
    numbers = np.arange(n).reshape(-1, *[1] * behind)
    numbers.flags.writeable = False
    return numbers


def _numbers(n: int, behind: int) -> Any:
    """0 to ``n`` along a dimension with so many behind it."""
    return _kept_numbers(n, behind) if n <= KEPT else np.arange(n).reshape(-1, *[1] * behind)


def _nonzero(x: Any) -> Any:
    return x.nonzero()


def _cumulative_sum(x: Any, axis: int, dtype: Any, include_initial: bool = False) -> Any:
    if include_initial:
        return np.cumulative_sum(x, axis=axis, dtype=dtype, include_initial=True)
    return np.add.accumulate(x, axis, dtype)


numpy = _NumPy()
