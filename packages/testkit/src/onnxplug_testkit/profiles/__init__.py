"""Must-pass profiles: lists of cells, versioned data, that a provider of a kind has to claim and prove.

A profile names an operator's newest claimed version, so that it stays good when ONNX adds a version.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources

NAMES = ("elementwise", "cnn", "transformer", "full")
Wanted = tuple[str, str, str, str]
"""Domain, operator, type parameter, type."""


@dataclass(frozen=True)
class Profile:
    """A profile's name, version and cells."""

    name: str
    version: int
    cells: tuple[Wanted, ...]

    def __str__(self) -> str:
        return f"{self.name}-{self.version}"


def load(name: str) -> Profile:
    """A profile of this kit by name, those it includes first. ValueError for an unknown name."""
    if name not in NAMES:
        raise ValueError(f"{name} is not a profile; profiles are {', '.join(NAMES)}")
    data = tomllib.loads(resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    cells: dict[Wanted, None] = {}
    for included in data.get("includes", ()):
        cells.update(dict.fromkeys(load(included).cells))
    for group in data.get("cells", ()):
        for op_type in group["operators"]:
            for parameter, elements in group["types"].items():
                cells.update(
                    dict.fromkeys((group.get("domain", ""), op_type, parameter, f"tensor({e})") for e in elements)
                )
    return Profile(name, data["version"], tuple(cells))
