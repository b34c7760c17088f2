"""What of a device decides the form of kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """``registers``: a work-item works alone, on tiles in registers; else groups share local memory, of which there are ``local_memory``
    bytes. ``units`` work at the same time. ``vector``: bytes of the device's vectors."""

    processor: bool
    registers: bool
    double: bool
    largest_group: int
    units: int
    local_memory: int
    vector: int
