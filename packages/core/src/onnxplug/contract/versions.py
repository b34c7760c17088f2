"""Versions of the operators that the installed onnx knows, kept on disk for each release of it: kernels are checked against them, in
processes too that have no other use for onnx."""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import sys
from collections.abc import Mapping
from typing import Any

from onnxplug._onnx import defer
from onnxplug.contract.cache import user_cache
from onnxplug.contract.digest import blake2b

_LIMIT = 1 << 20


@functools.cache
def schema_versions() -> Mapping[tuple[str, str], frozenset[int]]:
    """(domain, operator) -> since-versions of all its schemas, from onnx's own history."""
    cache, release = user_cache("onnx", ".versions", _LIMIT), onnx_release()
    name = "" if release is None else blake2b(repr(release).encode(), digest_size=20).hexdigest()
    if cache is not None and release is not None and (kept := cache.get(name)) is not None:
        return {key: frozenset(found) for key, found in marshal.loads(kept).items()}
    defer()
    from onnx import defs

    versions: dict[tuple[str, str], set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        versions.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    if cache is not None and release is not None:
        own = {key: sorted(found) for key, found in versions.items() if key[0] == "" or key[0].startswith("ai.onnx")}
        cache.put(name, marshal.dumps(own))  # without what this program registered
    return {key: frozenset(found) for key, found in versions.items()}


def onnx_release() -> Any:
    """What tells the installed onnx, which may not be imported yet, from other releases; None where it is not a plain folder."""
    spec = getattr(sys.modules["onnx"], "__spec__", None) if "onnx" in sys.modules else importlib.util.find_spec("onnx")
    if spec is None or spec.origin is None:
        return None
    folder = os.path.dirname(spec.origin)
    try:
        states = [os.stat(os.path.join(folder, name)) for name in ("", "version.py")]
    except OSError:
        return None
    return sys.version, folder, [(state.st_mtime_ns, state.st_size) for state in states]
