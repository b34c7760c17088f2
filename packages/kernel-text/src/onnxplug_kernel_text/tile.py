"""Tiles of products for processors."""

from __future__ import annotations

from dataclasses import dataclass

from onnxplug_kernel_text.types import SIZES, accumulated


@dataclass(frozen=True)
class Tile:
    """A tile of ``rows`` times ``vectors`` vectors of ``width`` elements: 6 x 2 x 8 floats fill the registers of AVX2. With AVX-512 8 x 2 x
    16 keep both units for products busy; larger ones are no faster, and leave more of themselves empty at a matrix's edges. ``paired``:
    elements of the factors are words of two int16, which follow each other along the depth, those of the result int32."""

    rows: int = 6
    width: int = 8
    vectors: int = 2
    paired: bool = False

    @property
    def columns(self) -> int:
        return self.width * self.vectors


def tile_for(type_: str, rows: int, vector: int) -> Tile:
    """The tile for results of a type with that many rows, on a device with vectors of so many bytes: with 64 it has twice the registers,
    too."""
    wide = vector >= 64
    return Tile(max(1, min(8 if wide else 6, rows)), (64 if wide else 32) // SIZES[accumulated(type_)])
