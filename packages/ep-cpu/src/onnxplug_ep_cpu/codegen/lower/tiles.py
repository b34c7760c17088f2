"""Register tiles of matrix products: how many rows and vectors of columns a kernel holds in registers, how wide panels of weights are."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.tile_rows import parts, rests
from onnxplug_ep_cpu.codegen.recipes import remembered
from onnxplug_ep_cpu.codegen.target import Target

FEW_TILES = 4
"""Up to so many tiles of rows, a last one of fewer rows is worth code of its own."""


@record(frozen=True, slots=True)
class Tile:
    """The sums that a kernel holds in registers: ``rows`` of ``vectors`` vectors of columns; ``masked``: the result is narrower than one
    vector."""

    rows: int
    vectors: int
    masked: bool = False
    varies: bool = False
    """Its kernel serves many numbers of rows: an argument tells it how much to fetch ahead, and behind whole tiles there may be any number
    of rows, unless a table finds them (see ``Gemm``)."""
    last: int = 0
    """Vectors of the last panel, where it has fewer."""
    lapped: bool = False
    """The only panel is wider than the result: its last vector overlaps the one before."""

    def width(self, target: Target) -> int:
        return self.vectors * target.lanes


MOST_ROWS = 10
"""More rows need more addresses than a processor has registers for, and LLVM then keeps sums in memory."""


@remembered
def panel_vectors(target: Target, n: int) -> int:
    """Vectors across a panel for ``n`` columns, whatever the number of rows, so that weights are packed once."""
    most = 2 if target.registers <= 16 else 4 if n >= 4 * target.lanes else 2
    candidates = [v for v in (2, 3, 1, 4) if v <= max(most, 3) and v * target.lanes <= max(n, target.lanes)]
    return min(candidates, key=lambda v: (-(-n // (v * target.lanes)) * panel_time(v), abs(v - 2)))


def panel_time(vectors: int) -> float:
    """Estimated time for a panel of so many vectors, in units of one vector's products."""
    return vectors + (0.9 if vectors == 1 else 0.2)


@remembered
def deep_vectors(target: Target, n: int, depth: int) -> int:
    """``panel_vectors`` of products whose ``depth`` is not done in steps: widest panels that crowd the second-level cache are halved."""
    vectors = panel_vectors(target, n)
    return 2 if vectors == 4 and 4 * depth * vectors * target.lanes > target.l2 // 4 else vectors


@remembered
def split(target: Target, n: int, depth: int) -> tuple[int, int, bool]:
    """Panels for ``n`` columns where the last may be narrower: vectors of a panel, of the last one if it has fewer, and whether those
    of a single one overlap. Products whose ``depth`` is done in steps have panels of one width."""
    lanes, whole, wide = target.lanes, -(-n // target.lanes), deep_vectors(target, n, depth)
    if n < lanes or 4 * depth * wide * lanes > target.l2 // 4:
        return wide, 0, False
    most = 3 if target.registers <= 16 else 4 if wide == panel_vectors(target, n) else wide

    def time(vectors: int) -> float:
        full, rest = divmod(whole, vectors)
        each = full * panel_time(vectors) + (panel_time(rest) if rest else 0)
        return each if vectors == wide else 1.05 * each  # as panels of one width would be, unless much is gained

    vectors = min(range(1, min(most, whole) + 1), key=time)
    return vectors, whole % vectors if whole > vectors else 0, whole == vectors and n < whole * lanes


def wide_target(target: Target, element: str) -> Target:
    """The target with the registers that tiles can count on: a vector of float64 takes two."""
    return replace(target, registers=target.registers // 2) if element == "float64" else target


def most_rows(target: Target, wide: int) -> int:
    """Rows of a tile whose sums fill the registers."""
    return min(max(1, (target.registers - 1 - wide) // wide), MOST_ROWS)


def tile_time(rows: int, wide: int) -> float:
    """Estimated cycles of a tile for one step of k."""
    sums = rows * wide
    waits = 4 / max(1, 8 // sums)  # the latency of a product, over the chains of sums that hide it
    return max(sums / 2, (rows + wide) / 2, wide, waits) + 0.15


WORTH = 1.05
"""How many times faster tiles of another height have to be to have a kernel of their own."""


def best_rows(most: int, m: int, varies: bool, time: Callable[[int], float]) -> int:
    """The rows, ``most`` at most, of the tiles of a product of m rows that take the least ``time``. Where m ``varies`` there are two
    heights, so that few kernels serve all products, and one for each m that is smaller."""
    if not varies:
        return min(range(1, min(most, m) + 1), key=lambda rows: (time(rows), -rows))
    lower = most * 2 // 3 + 1
    if m < most:
        return min(lower, m)
    return lower if time(lower) * WORTH < time(most) else most


@remembered
def choose_tile(target: Target, m: int, n: int, vectors: int = 0, whole: bool = False, varies: bool = False) -> Tile:
    """The tile with the least time for an m x n result: registers filled, little of it computed twice. With ``vectors``
    the panels are that wide, and a last tile may have fewer rows (see ``products.product``), unless all are to be ``whole``.
    ``varies``: see ``best_rows``."""
    wide = vectors or panel_vectors(target, n)

    def time(rows: int) -> float:
        if vectors and not whole and m % rows:
            return m // rows * tile_time(rows, wide) + tile_time(m % rows, wide)
        return math.ceil(m / rows) * tile_time(rows, wide)

    rows = best_rows(most_rows(target, wide), m, varies, time)
    return Tile(rows, wide, n < target.lanes, varies)


def varying_tile(
    target: Target, m: int, n: int, vectors: int, varies: bool, element: str = "float32", whole: bool = False
) -> Tile:
    """``choose_tile`` for products whose number of rows, if it ``varies``, is another in other runs: they get one tile, with ``ANY``
    rest, so that the kernel serves all numbers of rows but one."""
    target = wide_target(target, element)
    most = most_rows(target, vectors)
    if not varies or most < 3 or m == 1:
        return choose_tile(target, m, n, vectors, whole)
    return Tile(most, vectors, n < target.lanes, True)


SPARED = 2
"""Whole tiles at most whose rows are better divided among those of the rest."""


@functools.cache
def _spared(rows: int, vectors: int, rest: int, most: int) -> int:
    """How many tiles of ``rows`` rows before a rest, ``most`` at most, had better be part of it."""

    def time(spared: int) -> float:
        tiles = parts(spared * rows + rest, rows)
        if min(tiles) < min(rests(rows)):
            return math.inf
        return sum(tile_time(part, vectors) for part in tiles) - spared * tile_time(rows, vectors)

    return min(range(most + 1), key=lambda spared: round(time(spared), 6)) if rest else 0


@functools.cache
def full_tiles(rows: int, vectors: int) -> Callable[[int, int], int]:
    """(rows of a product, 0) -> its tiles of ``rows`` rows where the rest may be any."""

    def count(m: int, _: int) -> int:
        full, rest = divmod(m, rows)
        return full - _spared(rows, vectors, rest, min(full, SPARED))

    return count
