"""NumPy as the kernels' array namespace: what only calls an array's own method calls it without NumPy's wrappers in between,
which cost small tensors more than the work."""

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
            reshape=_reshape, permute_dims=_permute_dims, squeeze=_squeeze, take=_take, concat=np.concatenate
        )

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


numpy = _NumPy()
