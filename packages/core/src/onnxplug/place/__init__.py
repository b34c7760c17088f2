"""Who runs what, where values live, which copies are needed, and why."""

from onnxplug.place.place import place
from onnxplug.place.units import (
    CORE,
    ControlUnit,
    CopyUnit,
    KernelUnit,
    Located,
    PlacedGraph,
    Placement,
    Reasons,
    RegionUnit,
    SessionProvider,
    Unit,
)

__all__ = [
    "CORE", "ControlUnit", "CopyUnit", "KernelUnit", "Located", "PlacedGraph", "Placement", "Reasons", "RegionUnit", "SessionProvider",
    "Unit", "place",
]  # fmt: skip
