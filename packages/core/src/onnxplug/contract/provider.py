"""The provider: what a plugin announces (``ProviderSpec``) and what a session talks to (``ExecutionProvider``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.claims import Claim, CompiledRegion, Decline, Inline, Region
from onnxplug.contract.graph import GraphView
from onnxplug.contract.kernels import KernelDef, KernelLookup, KernelRegistry
from onnxplug.contract.memory import Allocator, Buffer, DataTransfer
from onnxplug.contract.options import NoOptions
from onnxplug.contract.records import record

if TYPE_CHECKING:
    from onnxplug.contract.logs import Logger

CONTRACT_VERSION = (0, 1)
"""(major, minor). While the major is 0 every minor breaks; from 1.0 on a provider works when its major is equal and its
minor not above."""


@record(frozen=True, slots=True)
class Available:
    """The provider can be used here."""

    detail: str = ""


@record(frozen=True, slots=True)
class Unavailable:
    """The provider cannot be used here: why, and what to do about it."""

    reason: str
    fix: str = ""


@record(frozen=True, slots=True)
class DeviceInfo:
    """One device a provider can drive, as ``get_ep_devices()`` lists it. ``type`` is CPU, GPU or NPU. ``options`` make the provider use it;
    one that has the option ``device_id`` is told the ``id``."""

    type: str
    id: int = 0
    vendor: str = ""
    name: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


@record(frozen=True, slots=True)
class SessionContext:
    """What a session tells a provider at creation. ``threads`` is intra_op_num_threads resolved to a number; ``config``
    the session's config entries; ``log`` a ``logging.Logger``, or what imports that module for its first message; ``seed`` the process
    seed of random operators or None."""

    threads: int
    config: Mapping[str, str]
    log: Logger
    seed: int | None = None


def _available() -> Available:
    return Available()


def _no_devices() -> Sequence[DeviceInfo]:
    return ()


@record(frozen=True, slots=True)
class ProviderSpec:
    """A provider's announcement, made by its light front door; nothing here may import a device library.

    ``check`` answers whether it can be used on this machine, cheaply and without side effects; ``create(options,
    context)`` is called once per session, and for each further device that it is to use, with an instance of ``options``. It raises EPFail
    where the device turns out to be of no use: the session then skips the provider, with a warning.
    ``several_devices``: whether instances on several devices work beside each other in one session. Where that is not said, a session takes
    the first only, and warns.
    """

    name: str
    contract: tuple[int, int]
    create: Callable[[Any, SessionContext], ExecutionProvider]
    device_kind: str = "cpu"
    vendor: str = ""
    options: type = NoOptions
    check: Callable[[], Available | Unavailable] = _available
    devices: Callable[[], Sequence[DeviceInfo]] = _no_devices
    several_devices: bool = False


def view_host(buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """The array at ``offset`` of a host buffer whose handle is a uint8 array."""
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    start = buffer.offset + offset
    return buffer.handle[start : start + size].view(dtype).reshape(tuple(shape))  # type: ignore[no-any-return]


class ExecutionProvider:
    """Base class of a session's provider: each method implements the hook of the same name
    (``onnxplug.contract.hooks``), with the default that fits a provider of host-memory kernels. Subclasses override
    what they need; no decorator is needed."""

    concurrent_run: bool = True
    """False: the session never lets two runs use this provider at once."""

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        for node in graph.nodes:
            found = kernels.kernel_for(node)
            if isinstance(found, KernelDef):
                yield Claim([node])

    def get_kernel_registry(self) -> KernelRegistry | None:
        return None

    def create_allocators(self) -> Sequence[Allocator]:
        return ()

    def get_data_transfer(self) -> DataTransfer | None:
        return None

    def view(self, buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> Any:
        return view_host(buffer, offset, dtype, shape)

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        raise NotImplementedError(f"{type(self).__name__} claims fused regions but has no compile()")

    def load_region(self, blob: bytes) -> CompiledRegion:
        raise NotImplementedError(f"{type(self).__name__} cannot load exported regions")

    def close(self) -> None:
        """Called once when the session goes, after every buffer has been freed."""
