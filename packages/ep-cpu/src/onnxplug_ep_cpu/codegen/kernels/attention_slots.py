"""The arguments of the attention kernels, and operands of the scores as they read them."""

from __future__ import annotations

from enum import IntEnum

from onnxplug_ep_cpu.codegen.emit import F32, I8, Emitter


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes. Operands follow, four slots each: address, batch, head and row
    strides."""

    Q = 0
    K = 1
    V = 2
    C = 3
    SCRATCH = 4
    M = 5  # query rows
    S = 6  # keys
    D = 7  # depth of queries and keys
    E = 8  # columns of values
    HEADS = 9
    GROUP = 10  # query heads that share a key head
    BLOCK = 11  # tiles of rows one item does
    BLOCKS = 12
    GRAB = 13  # items that use the same slot of scratch memory
    SLOT = 14  # bytes of a slot
    SCORES = 15  # where scores start in a slot; the reciprocal sums lie before them
    LINE = 16  # bytes of a row of scores
    Q0 = 17
    Q1 = 18
    QR = 19
    K0 = 20
    K1 = 21
    KR = 22
    V0 = 23
    V1 = 24
    VR = 25
    C0 = 26
    C1 = 27
    CR = 28
    SEEN = 29  # causal: keys that the first row sees
    STEP = 30  # in blocks of keys: keys of a block
    ROOM = 31  # bytes of a number for each row: in blocks, factors, largest scores and sums lie one behind the other
    PARTS = 32  # in blocks: where the results so far start in a slot
    OPERANDS = 33


POINTERS = (Arg.Q, Arg.K, Arg.V, Arg.C, Arg.SCRATCH)
Operand = tuple[str, str]
"""Element type ("float32" or "bool") and "v" (a vector along the keys) or "s" (one value for the row)."""


def operand_at(f: Emitter, operand: Operand, start: str, column: int, mask: str | None) -> str:
    """An operand of the scores as expressions read it."""
    element, kind = operand
    if element == "float32":
        return f.splat(f.load(F32, start)) if kind == "s" else f.load_masked(F32, f.at(start, 4 * column), mask)
    if kind == "s":
        raw = f.splat(f.load(I8, start, 1), I8)
    else:
        raw = f.load_masked(I8, f.at(start, column), mask, 1)
    return f.value(f"icmp ne {f.vec(I8)} {raw}, zeroinitializer")
