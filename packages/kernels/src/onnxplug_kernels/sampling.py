"""Reading arrays at fractional places, several axes at once: what GridSample and DeformConv share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tap:
    """One of the elements along an axis that samples are made of: (batch, samples) indices in the axis, and weights.

    Weights of None are all 1. ``seen``: whether there is such an element; what is read in place of one that is not adds nothing,
    whatever it is. None: there always is.
    """

    index: Any
    weight: Any = None
    seen: Any = None


def linear_taps(xp: Any, at: Any, size: int) -> list[Tap]:
    """The two neighbours of fractional coordinates; those outside the axis add nothing."""
    low = xp.floor(at)
    upper = at - low
    first = xp.astype(low, xp.int64)
    return [inside(xp, Tap(first, 1 - upper), size), inside(xp, Tap(first + 1, upper), size)]


def inside(xp: Any, tap: Tap, size: int) -> Tap:
    """``tap`` with its indices brought into the axis, seen where they lay there."""
    index = xp.clip(tap.index, 0, size - 1)
    return Tap(index, tap.weight, index == tap.index)


def gather(xp: Any, x: Any, taps: Sequence[Sequence[Tap]]) -> Any:
    """Sample (batch, channels, *spatial) at (batch, samples) places given by the taps of each spatial axis.

    The result is (batch, channels, samples): summed over combinations of taps, elements times their weights' product.
    """
    batch, channels, *spatial = x.shape
    flat = xp.reshape(x, (batch, channels, math.prod(spatial)))
    units = [math.prod(spatial[axis + 1 :]) for axis in range(len(spatial))]
    if batch == 0:
        return xp.zeros((0, channels, taps[0][0].index.shape[1]), dtype=x.dtype)
    images = []
    for image in range(batch):
        total = None
        for corner in itertools.product(*taps):
            index, weight, seen = None, None, None
            for tap, unit in zip(corner, units, strict=True):
                step = tap.index[image, :] * unit
                index = step if index is None else index + step
                if tap.weight is not None:
                    share = tap.weight[image, :]
                    weight = share if weight is None else weight * share
                if tap.seen is not None:
                    there = tap.seen[image, :]
                    seen = there if seen is None else seen & there
            part = xp.take(flat[image, ...], index, axis=1)
            if weight is not None:
                part = part * weight
            if seen is not None:
                part = xp.where(seen, part, xp.zeros((), dtype=part.dtype))
            total = part if total is None else total + part
        images.append(total)
    return xp.stack(images, axis=0)
