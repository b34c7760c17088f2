"""Measured times on disk, so that a later process need not measure: one small file for each product, private to the user, bounded.

``ONNXPLUG_CACHE_DIR`` names the folder (default: the user's cache folder); ``ONNXPLUG_CACHE=0`` switches it off. Several processes may
share it: files are written aside and renamed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger("onnxplug.opencl")

LIMIT = 4096
"""Files; beyond it those not used for longest go."""


class Store:
    """Nanoseconds by the name of what was measured, under a key."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self._folder, self._limit = folder, limit

    def get(self, key: str) -> dict[str, int] | None:
        """What is kept under a key, or None; a file that holds something else counts as none."""
        path = self._folder / f"{key}.json"
        try:
            text = path.read_bytes()
        except OSError:
            return None
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not found or not all(type(n) is int and n >= 0 for n in found.values()):
            log.warning("%s does not hold measured times: they are measured again", path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return found

    def put(self, key: str, times: Mapping[str, int]) -> None:
        """Keep times; a folder that cannot be written to keeps nothing."""
        try:
            handle, aside = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "w") as file:
                json.dump(dict(times), file)
            os.replace(aside, self._folder / f"{key}.json")
        except OSError as error:
            log.warning("measured times are not kept: %s", error)
            return
        self._trim()

    def _trim(self) -> None:
        files = []
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(OSError):
                files.append((path.stat().st_mtime, path))
        for _, path in sorted(files)[: max(len(files) - self._limit, 0)]:
            with contextlib.suppress(OSError):
                path.unlink()


def store() -> Store | None:
    """The store of this user; None when it is switched off or its folder is not this user's alone."""
    if os.environ.get("ONNXPLUG_CACHE") == "0":
        return None
    named = os.environ.get("ONNXPLUG_CACHE_DIR")
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = (Path(named) if named else home / "onnxplug") / "opencl"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stat = folder.stat()
    except (OSError, RuntimeError) as error:
        log.warning("measured times are not kept: %s", error)
        return None
    if hasattr(os, "getuid") and (stat.st_uid != os.getuid() or stat.st_mode & 0o022):
        log.warning("measured times are not kept: %s belongs to, or can be written by, other users", folder)
        return None
    return Store(folder)
