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
    """A profile's cells, and its name with its version: ``cnn-1``; of several together ``cnn-1, transformer-1``."""

    label: str
    cells: tuple[Wanted, ...]

    def __str__(self) -> str:
        return self.label


def load(names: str) -> Profile:
    """A profile of this kit by name (``cnn``), or several together by names with commas between them; what is given as a label
    (``cnn-1``) has to be of that version. ValueError for an unknown name or another version."""
    found = [_labelled(name.strip()) for name in names.split(",")]
    cells = dict.fromkeys(cell for profile in found for cell in profile.cells)
    return Profile(", ".join(profile.label for profile in found), tuple(cells))


def _labelled(given: str) -> Profile:
    """A profile by name, or by name and version."""
    name, _, version = given.rpartition("-")
    if not name or not version.isdecimal():
        return _one(given)
    found = _one(name)
    if found.label != given:
        raise ValueError(f"the profile {given} is not in this kit, which has {found.label}")
    return found


def _one(name: str) -> Profile:
    """A profile with those it includes first."""
    if name not in NAMES:
        raise ValueError(f"{name} is not a profile; profiles are {', '.join(NAMES)}")
    data = tomllib.loads(resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    cells: dict[Wanted, None] = {}
    for included in data.get("includes", ()):
        cells.update(dict.fromkeys(_one(included).cells))
    for group in data.get("cells", ()):
        for op_type in group["operators"]:
            for parameter, elements in group["types"].items():
                cells.update(
                    dict.fromkeys((group.get("domain", ""), op_type, parameter, f"tensor({e})") for e in elements)
                )
    return Profile(f"{name}-{data['version']}", tuple(cells))
