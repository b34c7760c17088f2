"""Which algorithm a convolution is done by: the one of least estimated time among those that can."""

from __future__ import annotations

import itertools
import math

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.filtering import Axis
from onnxplug_ep_cpu.codegen.lower.sliding import FEW_CHANNELS, in_registers, pixels, vectors_beside
from onnxplug_ep_cpu.codegen.lower.tiles import choose_tile, deep_vectors
from onnxplug_ep_cpu.codegen.lower.winograd import tiles_of, two
from onnxplug_ep_cpu.codegen.recipes import remembered
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints
from onnxplug_kernels.windows import Windows

RESULTS = {(1, 1): (1,), (3, 1): (2, 4), (5, 1): (2,), (7, 1): (2,), (3, 2): (2, 4), (5, 2): (2,)}
"""(taps, stride) of an axis -> results a Winograd tile may have along it: those that err no more than F(4 x 4, 3 x 3) does."""
LONG = 7
"""Taps that only one axis of a Winograd tile may have, for the error's sake."""
WIDEST = 11
"""Taps across that the sliding kernel unrolls."""
WIDEST_ALONE = 63
"""The same of filters of one channel: as products of gathered rows large ones take thirty times as long."""
MOST_CHANNELS = 48
"""Input channels of a result of the sliding kernel; with more a product's rows are long enough."""
NARROW = 64
"""Channels of a group from which on its rows fill the cache lines they lie in."""
MOST_FILTERS = 4
"""Results of one channel that a vector of them is shuffled for."""
MOST_TAPS = 49
"""Taps of the largest depthwise filter of three dimensions that is unrolled."""
LONGEST = 128
"""Taps across the widest other one: filters of speech are long. As products of gathered rows they take fifteen times as long."""


@record(frozen=True, slots=True)
class Layer:
    """A convolution with everything its time depends on; ``weights`` is the filters' shape, ``shape`` the result's."""

    shape: Ints
    weights: Ints
    moves: Windows
    groups: int
    varies: bool = False
    """Whether the model leaves the image's size open: kernels are then to serve many."""

    @property
    def taps(self) -> int:
        return math.prod(self.weights[2:])


@record(frozen=True, slots=True)
class Algorithm:
    """ "direct" (products of gathered rows), "depthwise", "sliding" (see its kernel for ``spread``) or "winograd" over tiles
    of ``axes``."""

    kind: str
    axes: tuple[Axis, Axis] | None = None
    spread: int = 0

    def __str__(self) -> str:
        if self.axes is None:
            return self.kind
        return f"Winograd F({self.axes[0].outputs}x{self.axes[1].outputs}, {self.axes[0].taps}x{self.axes[1].taps})"


def surplus(algorithm: Algorithm, layer: Layer) -> int:
    """Bytes that transformed filters have more than filters."""
    if algorithm.axes is None:
        return 0
    return 4 * math.prod(layer.weights[:2]) * (math.prod(axis.planes for axis in algorithm.axes) - layer.taps)


def candidates(target: Target, layer: Layer, winograd: bool) -> dict[Algorithm, float]:
    """Every algorithm that can do the layer, with the cycles it is estimated to take on one thread."""
    found = {Algorithm("direct"): _direct_time(target, layer)}
    if math.prod(layer.shape) == 0:
        return found
    if _is_depthwise(target, layer):
        return {Algorithm("depthwise"): 0.0}
    spread = _spread(target, layer)
    if spread is not None:
        found[Algorithm("sliding", spread=spread)] = _sliding_time(target, layer, spread)
    for axes in _tiles(target, layer) if winograd else ():
        found[Algorithm("winograd", axes)] = _winograd_time(target, layer, axes)
    return found


@remembered
def quickest(target: Target, layer: Layer, winograd: bool) -> tuple[Algorithm, int]:
    """The one of least estimated time, and how many there are."""
    found = candidates(target, layer, winograd)
    return min(found, key=lambda each: found[each]), len(found)


def _is_depthwise(target: Target, layer: Layer) -> bool:
    """One input channel for each result, few results of each channel."""
    outputs, channels = layer.weights[:2]
    alone = channels == 1 and layer.groups > 1 and outputs <= MOST_FILTERS * layer.groups
    fits = layer.taps <= MOST_TAPS if len(layer.weights) > 4 else layer.weights[-1] <= LONGEST
    return alone and by_channel(target, outputs) and layer.taps > 0 and fits


def by_channel(target: Target, channels: int) -> bool:
    """Whether so many channels make vectors: whole ones, or a part of one where the rest costs nothing."""
    return channels >= target.lanes or target.masks


def _spread(target: Target, layer: Layer) -> int | None:
    """How the sliding kernel's lanes read their inputs; None: it cannot do the layer."""
    outputs, channels, *kernel = layer.weights
    per_group, lanes = outputs // layer.groups, target.lanes
    if outputs % lanes or len(layer.shape) > 4 or channels > MOST_CHANNELS:
        return None
    if kernel[-1] > (WIDEST_ALONE if channels == 1 else WIDEST):
        return None
    if per_group % lanes == 0:
        return 0
    return channels if lanes % per_group == 0 and channels == per_group else None


def _tiles(target: Target, layer: Layer) -> list[tuple[Axis, Axis]]:
    """The Winograd tiles that fit."""
    outputs, channels = layer.weights[:2]
    moves = layer.moves
    kernel, strides = two(moves.kernel, 1), two(moves.strides, 1)
    dilated = any(d != 1 and k != 1 for d, k in zip(moves.dilations, moves.kernel, strict=True))
    if len(layer.shape) > 4 or min(outputs // layer.groups, channels * layer.groups) < target.lanes:
        return []
    if kernel == (1, 1) or (dilated and strides != (1, 1)) or (max(kernel) >= LONG and min(kernel) > 1):
        return []
    rows, columns = (
        [Axis(m, taps, stride) for m in RESULTS.get((taps, stride), ())]
        for taps, stride in zip(kernel, strides, strict=True)
    )
    found = itertools.product(rows, columns)
    # Of images of any size few forms of the filters are kept.
    square = layer.varies and kernel[0] == kernel[1] and strides[0] == strides[1]
    return [tile for tile in found if not square or tile[0] == tile[1]]


def _direct_time(target: Target, layer: Layer) -> float:
    """Products, unless the filters come from memory; panels that crowd the second-level cache cost more, and so do the rows of
    narrow groups, which lie in cache lines that they use a part of."""
    count = layer.shape[0] * math.prod(layer.shape[2:])
    outputs, channels = layer.weights[:2]
    depth, per_group = channels * layer.taps, outputs // layer.groups
    products = _product_time(target, count, per_group, depth, layer.taps if layer.taps > 1 else 0) * layer.groups
    crowded = 4 * depth * deep_vectors(target, per_group, depth) * target.lanes > target.l2 // 4
    return max(products * (1.3 if crowded else _scattered(layer)), _stream(target, math.prod(layer.weights)))


def _scattered(layer: Layer) -> float:
    """How much longer products of narrow groups take."""
    return 1.4 if layer.groups > 1 and layer.weights[1] < NARROW else 1.0


def _sliding_time(target: Target, layer: Layer, spread: int) -> float:
    """For every group of pixels and tap down, the products or the reading of what they need. That takes longer than they do where
    every column has an address of its own: on edges, and unless the step between pixels is known."""
    shape, (_, channels, *kernel) = layer.shape, layer.weights
    together = pixels(shape[-1], layer.varies)
    groups, vectors = -(-shape[-1] // together), shape[1] // target.lanes
    beside = vectors_beside(target, max(1, vectors // layer.groups), kernel[-1], together, spread)
    columns = (together - 1) * layer.moves.strides[-1] + kernel[-1]
    known = not spread and channels <= FEW_CHANNELS
    held = 1 if known and in_registers(target, beside, together, kernel[-1]) else 1.2
    products = 0.5 * held * together * kernel[-1] * beside
    slow, fast = max(products, 2.2 * columns), max(products, 0.6 * (columns + kernel[-1] * beside)) + 1
    edges = min(groups, 1) if known else groups
    down = math.prod(kernel[:-1])
    rows = down * (channels * (edges * slow + (groups - edges) * fast) + (8 if known else 15) * groups)
    return shape[0] * math.prod(shape[2:-1]) * (vectors // beside) * (rows + groups * (3 * together * beside + 15))


def _winograd_time(target: Target, layer: Layer, axes: tuple[Axis, Axis]) -> float:
    """Products, transforms, and filters that are too large for the cache; a tenth more, since errors and memory grow."""
    shape, (outputs, channels, *_) = layer.shape, layer.weights
    rows, columns = axes
    planes = rows.planes * columns.planes
    sizes, dilations = two(shape[2:], 1), two(layer.moves.dilations, 1)
    along = [tiles_of(size, axis.outputs, d) for size, axis, d in zip(sizes, axes, dilations, strict=True)]
    tiles = shape[0] * math.prod(along)
    products = (
        _product_time(target, tiles, outputs // layer.groups, channels) * planes * layer.groups * _scattered(layer)
    )
    stream = _stream(target, planes * channels * outputs)
    taken = channels * layer.groups * (planes + rows.side * columns.side)
    made = outputs * (planes + rows.outputs * columns.outputs)
    each = 2.4 if planes <= 36 else 3.2  # tiles of more elements pass through the stack more often
    transforms = tiles * (each * (taken + made) / target.lanes + 300)
    return 1.1 * (max(products, stream) + 0.1 * stream + transforms + 2000)


def _product_time(target: Target, m: int, n: int, k: int, taps: int = 0) -> float:
    """Cycles of a product whose operands are in cache: whole tiles, whose sums are begun and written as well; ``taps`` are the
    gathered parts of a row."""
    if m == 0 or n == 0:
        return 0.0
    tile = choose_tile(target, m, n)
    tiles = -(-m // tile.rows) * -(-n // tile.width(target))
    starts = taps * (4 if tile.vectors == 1 else 0.5)  # hidden where a row has more products
    return tiles * (k * tile.rows * tile.vectors * 0.55 + 20 + tile.rows * (8 + starts))


def _stream(target: Target, filters: int) -> float:
    """Cycles in which that many filter elements come from memory, one a cycle."""
    return float(filters) if 4 * filters > target.l2 // 2 else 0.0
