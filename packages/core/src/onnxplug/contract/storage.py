"""Offsets in a slab: storages whose lifetimes meet never overlap. Greedy by size, largest first (Pisarchyk and Lee,
2020, section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxplug.contract.records import record

ALIGNMENT = 64


@record(slots=True)
class Storage:
    """``nbytes`` needed from step ``first`` to step ``last``, both included; ``offset`` is the answer."""

    nbytes: int
    first: int
    last: int
    offset: int = 0


def assign_offsets(storages: Sequence[Storage], alignment: int = ALIGNMENT) -> int:
    """Set every offset; returns the bytes of the slab."""
    total = 0
    count = len(storages)
    starts, ends, firsts, lasts = (np.zeros(count, np.int64) for _ in range(4))
    for placed, storage in enumerate(sorted(storages, key=lambda s: -s.nbytes)):
        size = -(-max(storage.nbytes, 1) // alignment) * alignment
        meets = (firsts[:placed] <= storage.last) & (lasts[:placed] >= storage.first)
        storage.offset = _lowest_gap(starts[:placed][meets], ends[:placed][meets], size)
        starts[placed], ends[placed] = storage.offset, storage.offset + size
        firsts[placed], lasts[placed] = storage.first, storage.last
        total = max(total, storage.offset + size)
    return total


def _lowest_gap(starts: np.ndarray, ends: np.ndarray, size: int) -> int:
    offset = 0
    order = starts.argsort()
    for start, end in zip(starts[order].tolist(), ends[order].tolist(), strict=True):
        if start - offset >= size:
            break
        if end > offset:
            offset = end
    return offset
