"""Random numbers, drawn on the host from NumPy's generators.

A ``seed`` attribute begins a node's own sequence of numbers, which goes on from run to run and from trip to trip of a loop, as
onnxruntime's does; called by themselves the functions begin it with every call. Without a seed the numbers come from a
generator of this module, which ``set_seed`` restarts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import Function, op
from onnxplug_kernels.dtypes import ElementType, dtype_in
from onnxplug_kernels.ops.cast import cast_to
from onnxplug_kernels.precision import widen

_generator = np.random.default_rng()


def set_seed(seed: int) -> None:
    """Restart the generator behind the operators that have no ``seed`` attribute. Any integer is a seed, negative ones too."""
    global _generator
    _generator = np.random.default_rng(seed % 2**64)


Seed = float | np.random.Generator | None
"""The attribute, or the sequence that it began."""


def _draws(seed: Seed) -> np.random.Generator:
    if seed is None:
        return _generator
    if isinstance(seed, np.random.Generator):
        return seed
    # Seeds are float attributes: their bits tell 0.5 from 0.25, which rounding would not.
    return np.random.default_rng(int(np.float32(seed).view(np.uint32)))


def _drawing(op_type: str, since: int) -> Callable[[Function], Function]:
    """Enter a function that draws. What a node calls has the node's own sequence, where the node has a seed."""

    def enter(function: Function) -> Function:
        def prepare(xp: Any, *, seed: float | None = None, **attributes: Any) -> Callable[..., Any]:
            return functools.partial(function, xp, seed=None if seed is None else _draws(seed), **attributes)

        return op(op_type, since, 22, portable=False, prepare=prepare)(function)

    return enter


@_drawing("RandomNormal", 1)
def random_normal(
    xp: Any,
    *,
    shape: list[int],
    dtype: int = ElementType.FLOAT,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: Seed = None,
) -> Any:
    """Normally distributed numbers of the given ``mean`` and standard deviation ``scale``."""
    return xp.asarray(_draws(seed).normal(mean, scale, shape).astype(dtype_in(np, dtype)))


@_drawing("RandomNormalLike", 1)
def random_normal_like(
    xp: Any, x: Any, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: Seed = None
) -> Any:
    """As RandomNormal, in the shape of ``x`` and, without ``dtype``, of its element type."""
    drawn = _draws(seed).normal(mean, scale, x.shape)
    return xp.asarray(drawn.astype(x.dtype if dtype is None else dtype_in(np, dtype)))


@_drawing("RandomUniform", 1)
def random_uniform(
    xp: Any,
    *,
    shape: list[int],
    dtype: int = ElementType.FLOAT,
    low: float = 0.0,
    high: float = 1.0,
    seed: Seed = None,
) -> Any:
    """Uniformly distributed numbers between ``low`` and ``high``."""
    return xp.asarray(_draws(seed).uniform(low, high, shape).astype(dtype_in(np, dtype)))


@_drawing("RandomUniformLike", 1)
def random_uniform_like(
    xp: Any, x: Any, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: Seed = None
) -> Any:
    """As RandomUniform, in the shape of ``x`` and, without ``dtype``, of its element type."""
    drawn = _draws(seed).uniform(low, high, x.shape)
    return xp.asarray(drawn.astype(x.dtype if dtype is None else dtype_in(np, dtype)))


@_drawing("Multinomial", 7)
def multinomial(
    xp: Any, x: np.ndarray, *, dtype: int = ElementType.INT32, sample_size: int = 1, seed: Seed = None
) -> Any:
    """``sample_size`` class indices for each row of ``x``, which holds unnormalised log-probabilities."""
    logits = widen(np, x)
    weights = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1, dtype=np.float64)
    drawn = _draws(seed).random((x.shape[0], sample_size)) * weights[:, -1:]
    rows = zip(weights, drawn, strict=True)
    # Rounding can bring a draw up to the total; the last class with any weight is then meant.
    samples = [np.minimum(np.searchsorted(w, d, side="right"), np.searchsorted(w, w[-1])) for w, d in rows]
    return xp.asarray(np.array(samples).reshape(x.shape[0], sample_size).astype(dtype_in(np, dtype)))


@_drawing("Bernoulli", 15)
def bernoulli(xp: Any, x: np.ndarray, *, dtype: int | None = None, seed: Seed = None) -> Any:
    """1 with the probability that ``x`` holds, else 0, as ``dtype`` or the type of ``x``."""
    hits = _draws(seed).random(x.shape) < widen(np, x)
    return np.asarray(hits).astype(x.dtype) if dtype is None else cast_to(np, np.asarray(hits), dtype)
