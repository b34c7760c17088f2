"""Who runs what, where values live, which copies are needed, and why."""

from onnxplug.place.place import place
from onnxplug.place.units import (
    CORE,
    ControlUnit,
    CopyUnit,
    KernelUnit,
    PlacedGraph,
    Placement,
    RegionUnit,
    SessionProvider,
)

__all__ = [
    "CORE", "ControlUnit", "CopyUnit", "KernelUnit", "PlacedGraph", "Placement", "RegionUnit", "SessionProvider", "place",
]  # fmt: skip
