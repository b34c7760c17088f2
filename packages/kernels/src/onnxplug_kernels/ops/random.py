"""Random numbers, drawn on the host from NumPy's generators.

A ``seed`` attribute makes every call give the same numbers. Without one they come from a generator of this module,
which ``set_seed`` restarts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import ElementType, dtype_in
from onnxplug_kernels.ops.cast import cast_to
from onnxplug_kernels.precision import widen

_generator = np.random.default_rng()


def set_seed(seed: int) -> None:
    """Restart the generator behind the operators that have no ``seed`` attribute. Any integer is a seed, negative ones too."""
    global _generator
    _generator = np.random.default_rng(seed % 2**64)


def _draws(seed: float | None) -> np.random.Generator:
    # Seeds are float attributes: their bits tell 0.5 from 0.25, which rounding would not.
    return _generator if seed is None else np.random.default_rng(int(np.float32(seed).view(np.uint32)))


@op("RandomNormal", 1, 22, portable=False)
def random_normal(
    xp: Any,
    *,
    shape: list[int],
    dtype: int = ElementType.FLOAT,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Any:
    """Normally distributed numbers of the given ``mean`` and standard deviation ``scale``."""
    return xp.asarray(_draws(seed).normal(mean, scale, shape).astype(dtype_in(np, dtype)))


@op("RandomNormalLike", 1, 22, portable=False)
def random_normal_like(
    xp: Any, x: Any, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Any:
    """As RandomNormal, in the shape of ``x`` and, without ``dtype``, of its element type."""
    drawn = _draws(seed).normal(mean, scale, x.shape)
    return xp.asarray(drawn.astype(x.dtype if dtype is None else dtype_in(np, dtype)))


@op("RandomUniform", 1, 22, portable=False)
def random_uniform(
    xp: Any,
    *,
    shape: list[int],
    dtype: int = ElementType.FLOAT,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> Any:
    """Uniformly distributed numbers between ``low`` and ``high``."""
    return xp.asarray(_draws(seed).uniform(low, high, shape).astype(dtype_in(np, dtype)))


@op("RandomUniformLike", 1, 22, portable=False)
def random_uniform_like(
    xp: Any, x: Any, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Any:
    """As RandomUniform, in the shape of ``x`` and, without ``dtype``, of its element type."""
    drawn = _draws(seed).uniform(low, high, x.shape)
    return xp.asarray(drawn.astype(x.dtype if dtype is None else dtype_in(np, dtype)))


@op("Multinomial", 7, 22, portable=False)
def multinomial(
    xp: Any, x: np.ndarray, *, dtype: int = ElementType.INT32, sample_size: int = 1, seed: float | None = None
) -> Any:
    """``sample_size`` class indices for each row of ``x``, which holds unnormalised log-probabilities."""
    logits = widen(np, x)
    weights = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1, dtype=np.float64)
    drawn = _draws(seed).random((x.shape[0], sample_size)) * weights[:, -1:]
    rows = zip(weights, drawn, strict=True)
    # Rounding can bring a draw up to the total; the last class with any weight is then meant.
    samples = [np.minimum(np.searchsorted(w, d, side="right"), np.searchsorted(w, w[-1])) for w, d in rows]
    return xp.asarray(np.array(samples).reshape(x.shape[0], sample_size).astype(dtype_in(np, dtype)))


@op("Bernoulli", 15, 22, portable=False)
def bernoulli(xp: Any, x: np.ndarray, *, dtype: int | None = None, seed: float | None = None) -> Any:
    """1 with the probability that ``x`` holds, else 0, as ``dtype`` or the type of ``x``."""
    hits = _draws(seed).random(x.shape) < widen(np, x)
    return np.asarray(hits).astype(x.dtype) if dtype is None else cast_to(np, np.asarray(hits), dtype)
