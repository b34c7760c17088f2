"""NumPy as the kernels' array namespace. Functions that come down to one method of an array or ufunc call it directly: with small tensors
NumPy's wrappers take longer than the work."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np


class _NumPy(ModuleType):
    """The names of ``numpy``."""

    def __init__(self) -> None:
        super().__init__("numpy")
        self.__dict__.update(vars(np))
        self.__dict__.update(
            reshape=_reshape, permute_dims=_permute_dims, squeeze=_squeeze, take=_take, concat=np.concatenate,
            cumulative_sum=_cumulative_sum, nonzero=_nonzero,
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


def _nonzero(x: Any) -> Any:
    return x.nonzero()


def _cumulative_sum(x: Any, axis: int, dtype: Any, include_initial: bool = False) -> Any:
    if include_initial:
        return np.cumulative_sum(x, axis=axis, dtype=dtype, include_initial=True)
    return np.add.accumulate(x, axis, dtype)


numpy = _NumPy()
