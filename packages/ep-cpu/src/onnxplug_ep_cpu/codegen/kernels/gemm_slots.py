"""The arguments of the product kernel (``gemm``) and which of them a form of it reads."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from onnxplug_ep_cpu.codegen.kernels.tile_rows import ANY

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.kernels.gemm import Gemm


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes. Operands follow, four slots each: address, row stride, batch
    strides."""

    A = 0
    B = 1
    C = 2
    M = 3
    N = 4
    K = 5  # with a table: floats per tap
    LDA = 6
    LDB = 7
    LDC = 8
    BLOCK = 9  # tiles of rows one item does
    BLOCKS = 10
    PANELS = 11
    INNER = 12  # size of the inner batch dimension
    A0 = 13
    A1 = 14
    B0 = 15
    B1 = 16
    C0 = 17
    C1 = 18
    TABLE = 19
    TAPS = 20
    ZEROS = 21
    CHUNK = 22  # in steps of k: panels of one item
    DEPTH = 23  # the steps' k
    SCRATCH = 24  # sums between steps
    SLOT = 25  # bytes of one item's sums
    GRAB = 26  # items that use the same slot
    FULL = 27  # with any rest: tiles of all rows
    NEAR = 28  # where it is an argument: cache lines of the next panel that a turn of the loop asks for
    OPERANDS = 29


def used(kernel: Gemm) -> list[Arg]:
    """The slots a kernel reads."""
    table = (Arg.TABLE, Arg.TAPS, Arg.ZEROS) if not kernel.gathered else ()
    steps = (Arg.CHUNK, Arg.DEPTH, Arg.SCRATCH, Arg.SLOT, Arg.GRAB) if not kernel.blocked else ()
    rest = () if kernel.rest == ANY else (Arg.FULL,)
    near = () if kernel.near == ANY else (Arg.NEAR,)
    return [slot for slot in Arg if slot not in (Arg.OPERANDS, *table, *steps, *rest, *near)]
