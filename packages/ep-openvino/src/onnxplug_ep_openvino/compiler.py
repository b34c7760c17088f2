"""Regions compiled by OpenVINO for one device with one set of properties, and kept on disk."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxplug.contract import EPFail, Region
from onnxplug.contract.cache import DiskCache
from onnxplug.contract.digest import blake2b
from onnxplug_ep_openvino.device import after_fork, core, library, version
from onnxplug_ep_openvino.errors import plain
from onnxplug_ep_openvino.model import read

_FORMAT = 2
_DIGEST = 16
"""Bytes of the digest of a compiled region."""
_LIMIT = 1 << 30
"""Bytes of compiled regions that a cache holds."""


@dataclass(frozen=True)
class Compiled:
    """OpenVINO's compiled model of a region. ``places``: which of the region's inputs its inputs are; it has those only that matter."""

    model: Any
    places: Sequence[int]


class Compiler:
    """Makes OpenVINO's compiled models. RuntimeError for properties that the device refuses, EPFail where it does not come up."""

    def __init__(self, device: str, properties: Mapping[str, str], cache_dir: str) -> None:
        after_fork()
        self.device, self._properties = device, dict(properties)
        text = repr((_FORMAT, version(), device, sorted(self._properties.items())))
        self._setting = blake2b(text.encode(), digest_size=16).hexdigest()
        self._head = f"OpenVINO {version()} {device}\n".encode()
        self._cache = _cache(cache_dir)
        self._try()

    def compiled(self, region: Region) -> Compiled:
        """The region's compiled model, from the cache where it is kept."""
        if self._cache is None:
            return self._made(region)
        key = f"{self._setting}-{region.key()}"
        if (blob := self._cache.get(key)) is not None:
            return self.load(blob)
        made = self._made(region)
        self._cache.put(key, self.dump(made))
        return made

    def dump(self, made: Compiled) -> bytes:
        """The bytes that ``load`` restores, behind their digest: OpenVINO reads what is damaged, and gives anything."""
        stream = io.BytesIO()
        made.model.export_model(stream)
        body = json.dumps(list(made.places)).encode() + b"\n" + stream.getvalue()
        return self._head + _digest(body) + body

    def load(self, blob: bytes) -> Compiled:
        """What ``dump`` was given. RuntimeError where another OpenVINO or device made the bytes, or they are damaged."""
        if not blob.startswith(self._head):
            made = bytes(blob[:40]).partition(b"\n")[0].decode("ascii", "replace")
            raise RuntimeError(f"the region was compiled by {made!r}, here is {self._head.decode().strip()!r}")
        told, body = blob[len(self._head) :][:_DIGEST], blob[len(self._head) + _DIGEST :]
        if told != _digest(body):
            raise RuntimeError("the compiled region is damaged")
        places, _, exported = body.partition(b"\n")
        model = core().import_model(io.BytesIO(exported), self.device, self._properties)
        return Compiled(model, json.loads(places))

    def _made(self, region: Region) -> Compiled:
        model, places = read(region)
        return Compiled(core().compile_model(model, self.device, self._properties), places)

    def _try(self) -> None:
        """Whether the device takes the properties, tried once in a process."""
        if self._setting in _up:
            return
        why = self._why_down(self._properties)
        if why is not None and self._why_down({}) is None:
            given = ", ".join(f"{key}={value}" for key, value in self._properties.items())
            raise RuntimeError(f"OpenVINO's {self.device} does not take {given}: {why}")
        if why is not None:
            raise EPFail(f"OpenVINO's {self.device} does not start: {why}")
        _up.add(self._setting)

    def _why_down(self, properties: Mapping[str, str]) -> str | None:
        import numpy as np

        openvino = library()

        x = openvino.opset13.parameter([1], np.float32)
        try:
            core().compile_model(openvino.Model([openvino.opset13.relu(x)], [x]), self.device, dict(properties))
        except Exception as error:
            return str(plain(error))
        return None


_up: set[str] = set()
"""Devices, with their properties, that came up in this process."""


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST).digest()


def _cache(folder: str) -> DiskCache | None:
    if not folder:
        return None
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except (OSError, ValueError) as error:
        raise RuntimeError(f'provider option "cache_dir": {folder!r} is no folder: {error}') from error
    return DiskCache(folder, ".openvino", _LIMIT)
