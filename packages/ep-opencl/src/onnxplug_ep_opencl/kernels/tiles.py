"""Tiles of products: which a device may have, and which it gets where nothing is measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_kernel_text.local_product import LocalTile
from onnxplug_kernel_text.strips import Strips
from onnxplug_kernel_text.tile import Tile, tile_for
from onnxplug_kernel_text.types import SIZES, arithmetic

AnyTile = Tile | LocalTile | Strips

_GRIDS = ((6, 2), (4, 3), (12, 1), (8, 1), (4, 2))
"""Rows and vectors of tiles that 16 registers hold, with the vectors of the right factor and one number of the left."""
_FLAT = ((1, 8), (1, 4), (2, 4), (2, 2))
"""The same where a matrix has one row or two."""
_WIDE = ((12, 2), (8, 2), (6, 4))
"""The same for 32 registers, which come with vectors of 64 bytes."""
_LOCAL = (LocalTile(), LocalTile(64, 16, 8), LocalTile(32, 8, 16), LocalTile(32, 16, 16), LocalTile(128, 16, 8))


@dataclass(frozen=True)
class Work:
    """What the time of a product depends on: the type of elements; how its factors lie, in words; the extents."""

    element: str
    left: str
    right: str
    batch: int
    rows: int
    columns: int
    depth: int

    @property
    def shape_class(self) -> str:
        """The same for products so alike that they share a tile: extents are rounded up to a power of two."""
        extents = (1 << max(n - 1, 0).bit_length() for n in (self.batch, self.rows, self.columns, self.depth))
        return f"{self.element} {self.left} {self.right} {'x'.join(map(str, extents))}"


def by_registers(target: Target) -> bool:
    """Whether products are computed by tiles in registers, from panels: constant factors are packed for that."""
    return target.registers or target.largest_group < LocalTile().side ** 2


def usual(target: Target, work: Work, packed: Collection[int] = ()) -> AnyTile:
    """The tile where nothing is measured. With vectors of 64 bytes and no more columns than four of them hold, it holds all: the left
    factor, which is the larger one then, passes by once. ``packed``: rows of panels that a left factor is in already, for other shapes."""
    if not by_registers(target):
        return LocalTile()
    tile = tile_for(work.element, work.rows, target.vector)
    if target.vector < 64 or work.right == "packed":
        return tile
    flat = Tile(min(6, tile.rows), tile.width, 4)
    if packed and flat.rows != tile.rows:
        return flat if flat.rows in packed else tile
    return flat if tile.columns < work.columns <= flat.columns else tile


def candidates(target: Target, work: Work) -> list[AnyTile]:
    """Tiles worth measuring, the usual one first."""
    size = SIZES[arithmetic(work.element)]
    found: list[AnyTile] = [usual(target, work)]
    if by_registers(target):
        found += [Tile(rows, 32 // size, vectors) for rows, vectors in (*_GRIDS, *_FLAT) if _fills(rows, work)]
        if target.vector >= 64:
            found += [Tile(rows, 64 // size, vectors) for rows, vectors in (*_WIDE, *_FLAT) if _fills(rows, work)]
    else:
        found += [t for t in _LOCAL if t.side**2 <= target.largest_group and t.local_bytes(size) <= target.local_memory]
    return list(dict.fromkeys(found))


def _fills(rows: int, work: Work) -> bool:
    """Whether a tile of that many rows is neither mostly empty nor a small part of the matrix's rows."""
    return rows == work.rows if work.rows < 4 else 4 <= rows < work.rows + 4
