"""Graphs as an earlier process left them: read, inferred and optimized, so that a session of the same model needs neither onnx nor the
passes. Providers are asked about them as about any other.

They are kept by all they follow from: the model, the options, the providers with their versions, options and code, the versions of
onnxplug, onnx, NumPy and Python, the processor that constants were computed on. A model in a file is known by what the file system
says of the file, a model in memory by its digest.
"""

from __future__ import annotations

import functools
import marshal
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.cache import DiskCache, user_cache
from onnxplug.contract.digest import blake2b
from onnxplug.contract.errors import STATUS_ERRORS, Fail
from onnxplug.contract.processor import features
from onnxplug.contract.records import record
from onnxplug.contract.versions import onnx_release
from onnxplug.graph.ir import Graph
from onnxplug.graph.schemas import Schemas
from onnxplug.load.origin import BytesOrigin, FileOrigin, Origin, absolute
from onnxplug.plugins import ProviderInstance, registry
from onnxplug.session.options import SessionOptions
from onnxplug.session.selection import Selection

if TYPE_CHECKING:
    from onnxplug.load import Model

LIMIT = 128 << 20
"""Bytes of the folder."""
_LARGEST = 64 << 20
"""Bytes of a model in memory up to which its digest is had sooner than its graph."""
_SETTLED = 2_000_000_000
"""Nanoseconds: a file written to more recently may be written to again without its times telling, as they are coarse somewhere."""
_SCANNED = 1_000_000_000
"""Nanoseconds for which the files of code are taken to be as they were: many sessions are made one behind the other, and to look at
some hundred files takes longer than all the rest of a small one."""
_NO_MATTER = frozenset(
    {"enable_profiling", "log_severity_level", "log_verbosity_level", "logid", "profile_file_prefix"}
)
"""Options that no graph depends on."""
_BESIDE = ("ONNXPLUG_CACHE", "ONNXPLUG_CACHE_DIR", "ONNXPLUG_PROGRESS")
"""Variables of ours that no graph depends on."""


@record(frozen=True, slots=True)
class Recalled:
    """A graph as it was after optimization, what the passes removed, and what ``get_modelmeta`` shows; and the model, for what
    writes one of its own."""

    graph: Graph
    removed: dict[str, str]
    about: Mapping[str, Any]
    shelf: Shelf

    @property
    def path(self) -> str | None:
        """The model's."""
        return self.shelf.path

    @property
    def proto(self) -> Any:
        """The ModelProto, parsed now. Fail when the file is not the one that it was."""
        from onnxplug.load import load_model

        model = load_model(self.shelf.source, self.shelf.folder, "ONNX")  # which the first session found it is
        if model.origin != self.shelf.origin:
            raise Fail(
                f"The model is needed again from '{self.path}', but it has been written to since the session was created"
            )
        return model.proto


@record(frozen=True, slots=True)
class Shelf:
    """Where the graph of one model under some options is kept."""

    cache: DiskCache
    name: str
    source: str | bytes
    origin: Origin
    folder: str

    @property
    def path(self) -> str | None:
        """The model's, None for one in memory."""
        return None if isinstance(self.source, bytes) else self.source

    def get(self, schemas: Schemas) -> Recalled | None:
        """What is kept; None where nothing is."""
        blob = self.cache.get(self.name)
        if blob is None:
            return None
        from onnxplug.graph.snapshot import thaw

        frozen, removed, about, beside = marshal.loads(blob)
        if any(self._state(location) != state for location, state in beside):
            return None
        graph = thaw(frozen, schemas, self.folder, self.origin)
        graph.identify(self._identity(blob))
        return Recalled(graph, removed, about, self)

    def beside(self, model: Model) -> list[tuple[str, Any]]:
        """The files with external data of a model, as they are now: None for one that was written to just now."""
        from onnxplug.graph.external import external_locations

        return [(location, self._state(location)) for location in sorted(external_locations(model.proto))]

    def put(self, graph: Graph, removed: Mapping[str, str], model: Model, beside: list[tuple[str, Any]]) -> None:
        """Keep a graph that is not placed yet, unless parts of it are had from the model alone; ``beside``: what was said of external data
        before they were read."""
        from onnxplug.graph.snapshot import Unfit, freeze

        if model.origin != self.origin or any(state is None or state != self._state(at) for at, state in beside):
            return  # other files meanwhile
        try:
            data: Any = (freeze(graph, self.origin), dict(removed), model.about, beside)
            blob = marshal.dumps(data)
        except (Unfit, ValueError, MemoryError, *STATUS_ERRORS):
            return  # nested too deep, or damaged data, of which is told where it is needed
        self.cache.put(self.name, blob)
        graph.identify(self._identity(blob))

    def _state(self, location: str) -> Any:
        return _state(os.path.join(self.folder, location))

    def _identity(self, blob: bytes) -> str:
        """What the graph is known as: all it follows from, and itself, as another process may have named its parts otherwise."""
        return f"{self.name}:{blake2b(blob, digest_size=20).hexdigest()}"


def shelf(source: str | bytes, options: SessionOptions, selection: Selection) -> Shelf | None:
    """Where the graph is kept that a session would make of a model; None where none is to be kept or taken."""
    config = options._config_entries
    if options._initializers or options._external_initializers or options._external_files:
        return None  # weights that the model does not have
    if options._load_cancelled:
        return None  # which loading tells
    cache = user_cache("graphs", ".graph", LIMIT)
    known = None if cache is None else _identity(source)
    providers = list(map(_provider, selection.instances))
    if cache is None or known is None or None in providers:
        return None
    try:
        environment = _environment(selection.instances)
    except (OSError, ValueError):  # code that is being written, lies in an archive or was put together by a program
        return None
    origin, identity = known
    values = sorted((key, repr(value)) for key, value in options._values.items() if key not in _NO_MATTER)
    sizes = sorted(options._free_dimensions_by_name.items()), sorted(options._free_dimensions_by_denotation.items())
    facts = (identity, values, sorted(config.items()), sizes, providers, environment)
    name = blake2b(repr(facts).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
    outside = config.get("session.model_external_initializers_file_folder_path", "") or "."
    return Shelf(cache, name, source, origin, outside if isinstance(source, bytes) else os.path.dirname(source) or ".")


def _identity(source: str | bytes) -> tuple[Origin, Any] | None:
    """Where a model's bytes are, and what tells it from others."""
    if isinstance(source, bytes):
        found = blake2b(source, digest_size=32).hexdigest() if len(source) <= _LARGEST else None
        return None if found is None else (BytesOrigin(source), found)
    path = absolute(source)
    state = _state(path)
    return None if state is None else (FileOrigin(path, *state[:2]), (os.fsencode(path), *state))


def _state(path: str) -> tuple[int, ...] | None:
    """Size, time of the last change and what else tells a file from others; None where there is none, or it was written to just now."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    latest = max(state.st_mtime_ns, state.st_ctime_ns)
    if latest > time.time_ns() - _SETTLED:
        return None
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_dev, state.st_ino


def _provider(instance: ProviderInstance) -> Any:
    """A provider's name, version and options; None for one whose version nobody knows."""
    known = registry.record(instance.spec.name)
    if known is None or not known.distribution:
        return None
    return instance.spec.name, known.distribution, known.version, sorted(instance.option_strings.items())


def _environment(instances: Iterable[ProviderInstance]) -> Any:
    """What graphs depend on beside the model and the options: code, of the project's packages and the providers', and the processor.
    Packages are those that the providers' distributions require, imported or not: some are when they are first needed."""
    packages = {"onnxplug"}
    for instance in instances:
        packages.add(type(instance.provider).__module__.partition(".")[0])
        known = registry.record(instance.spec.name)
        packages.update(_ours(known.requires if known else ()))
    release = onnx_release()
    if release is None:
        raise OSError("onnx is not in a folder")
    now = time.monotonic_ns() // _SCANNED
    code = [_code(name, now) for name in sorted(packages)]
    ours = sorted((k, v) for k, v in os.environ.items() if k.startswith("ONNXPLUG_") and k not in _BESIDE)
    return sys.version, np.__version__, features(), release, code, ours


def _ours(requires: Iterable[str]) -> Iterator[str]:
    """The project's packages among what a distribution requires."""
    for text in requires:
        if found := re.match(r"onnxplug[\w.-]*", text, re.IGNORECASE):
            yield re.sub(r"[.-]+", "_", found[0].lower())


@functools.lru_cache(maxsize=16)
def _code(package: str, now: int) -> str:
    """A digest of the files of a package, by name, size and time, as they were when it was first asked for ``now``."""
    spec = find_spec(package)
    files: list[str] = []
    if spec is not None and spec.submodule_search_locations is not None:
        folders = list(spec.submodule_search_locations)
        for folder in folders:
            files += _files(folder, folders)
    elif spec is not None:
        files.append(_file(spec.origin or "", os.stat(spec.origin or "")))
    return blake2b("\n".join((package, *sorted(files))).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def _files(folder: str, folders: list[str]) -> list[str]:
    """The files of code in a folder; those in it that may have more are added to ``folders``."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith((".py", ".so", ".pyd")):
                found.append(_file(entry.path, entry.stat()))
            elif "." not in name and name != "__pycache__" and entry.is_dir():
                folders.append(entry.path)
    return found


def _file(path: str, state: os.stat_result) -> str:
    return f"{path}\0{state.st_size}\0{state.st_mtime_ns}"
