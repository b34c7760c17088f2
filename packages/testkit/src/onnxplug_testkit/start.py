"""From command line options and conformance.toml to a ``Kit``."""

from __future__ import annotations

import secrets
from pathlib import Path

from onnxplug_testkit import profiles
from onnxplug_testkit.checks import surroundings
from onnxplug_testkit.kit import Kit
from onnxplug_testkit.levels import up_to
from onnxplug_testkit.subject import resolve
from onnxplug_testkit.waivers import FILE, read

DEFAULT_LEVEL = "kernels"


def start(ep: str, level: str | None, profile: str | None, seed: int | None, waivers: Path | None) -> Kit:
    """The kit for these options; what an option leaves open, conformance.toml says. ValueError or LookupError for what is unknown."""
    if waivers is None and Path(FILE).is_file():
        waivers = Path(FILE)
    surroundings.remember()  # before a line of the provider's is run
    settings = read(waivers)
    chosen = level or settings.level or DEFAULT_LEVEL
    up_to(chosen)
    name = profile or settings.profile
    return Kit(
        resolve(ep, settings.options, settings.limit_option),
        chosen,
        secrets.randbits(31) if seed is None else seed,
        profiles.load(name) if name else None,
        settings.waivers,
    )
