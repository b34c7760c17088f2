"""Providers made for tests: one with memory of its own that NumPy cannot see, and what registers them for a while."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from onnxplug import register_provider
from onnxplug.contract import (
    CONTRACT_VERSION,
    HOST,
    Allocator,
    ArenaConfig,
    Buffer,
    Claim,
    DataTransfer,
    Device,
    ExecutionProvider,
    Into,
    Kernel,
    KernelDef,
    KernelRegistry,
    ProviderSpec,
)
from onnxplug.plugins.registry import unregister_provider

CPU = "CPUExecutionProvider"


@contextmanager
def offered(device_kind: str = "cpu", **makers: Callable[[], ExecutionProvider]) -> Iterator[dict[str, list[Any]]]:
    """Providers by full name, registered while the block runs; gives the objects that sessions made, by name."""
    made: dict[str, list[Any]] = {name: [] for name in makers}

    def creator(name: str) -> Callable[[Any, Any], ExecutionProvider]:
        def create(options: Any, context: Any) -> ExecutionProvider:
            made[name].append(makers[name]())
            return made[name][-1]

        return create

    for name in makers:
        register_provider(ProviderSpec(name, CONTRACT_VERSION, creator(name), device_kind), replace=True)
    try:
        yield made
    finally:
        for name in makers:
            unregister_provider(name)


class Opaque:
    """A dense row-major tensor in some block of bytes; only its provider reads it."""

    __slots__ = ("_block", "_offset", "dtype", "shape")
    __array_ufunc__ = None

    def __init__(self, block: list[Any], offset: int, dtype: Any, shape: Sequence[int]) -> None:
        self._block, self._offset, self.dtype, self.shape = block, offset, np.dtype(dtype), tuple(shape)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self.dtype}{self.shape} is not in host memory")

    __array__ = __bool__ = __float__ = __index__ = __int__ = __iter__ = __len__ = __getitem__ = _refuse

    def bytes(self) -> np.ndarray:
        """The contents, for the provider only."""
        assert self._block[0] is not None, "the memory was freed"
        size = math.prod(self.shape) * self.dtype.itemsize
        return self._block[0][self._offset : self._offset + size].view(self.dtype).reshape(self.shape)


def read(native: Any) -> np.ndarray:
    """What a kernel of a test provider sees of an operand, wherever it lives."""
    return native.bytes() if isinstance(native, Opaque) else native


class OwnAllocator(Allocator):
    """Blocks of a device; a freed block cannot be read any more."""

    def __init__(self, device: Device, arena: ArenaConfig | None = None) -> None:
        self.device, self.arena = device, arena or ArenaConfig()
        self.live: dict[int, Buffer] = {}
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> Buffer:
        buffer = Buffer(self.device, nbytes, [np.full(nbytes, 0xFF, np.uint8)])
        with self._lock:
            self.live[id(buffer)] = buffer
        return buffer

    def free(self, buffer: Buffer) -> None:
        with self._lock:
            if self.live.pop(id(buffer), None) is None:
                raise ValueError("not mine, or freed twice")
            buffer.handle[0] = None


class OwnTransfer(DataTransfer):
    """Copies to, from and within one device, each written down as (source device, destination device, bytes)."""

    def __init__(self, device: Device, reaches: Iterable[Device] = ()) -> None:
        self.device, self._ends = device, {HOST, device, *reaches}
        self.log: list[tuple[str, str, bytes]] = []

    def can_copy(self, source: Device, destination: Device) -> bool:
        return self.device in (source, destination) and {source, destination} <= self._ends

    def copy(self, source: Any, destination: Any, stream: Any = None) -> None:
        assert source.dtype == destination.dtype and tuple(source.shape) == tuple(destination.shape)
        for side in (source, destination):
            assert isinstance(side, Opaque) or side.flags.c_contiguous, "tensors that cross a boundary are dense"
        read(destination)[...] = read(source)
        names = [str(side._block[1]) if isinstance(side, Opaque) else str(HOST) for side in (source, destination)]
        self.log.append((*names, read(source).tobytes()))

    def moves(self) -> list[tuple[str, str]]:
        """Directions of all copies so far."""
        return [(at, to) for at, to, _ in self.log]


Rule = Callable[..., np.ndarray]
RULES: dict[str, Rule] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum, "Neg": np.negative,
    "Abs": np.abs, "Relu": lambda x: np.maximum(x, 0), "Identity": lambda x: x, "MatMul": np.matmul,
    "Less": np.less, "Not": np.logical_not, "Where": np.where,
}  # fmt: skip
VERSIONS = {"Max": 13, "Min": 13, "MatMul": 13, "Neg": 13, "Abs": 13, "Less": 13, "Not": 1, "Where": 16, "Identity": 21}
INPLACE = {"Add", "Sub", "Mul", "Neg", "Abs", "Relu"}


class RuleKernel(Kernel):
    """A rule over the elements. ``form``: "into" writes into given outputs, "returns" gives fresh tensors, "views" what
    the rule gives, be it a view of an input or the input itself."""

    def __init__(self, rule: Rule, form: str, device: Device) -> None:
        self.rule, self.form, self.device = rule, form, device

    def __call__(self, *inputs: Any) -> Any:
        if self.form == "views" and (self.device == HOST or self.rule is RULES["Identity"]):
            return self.rule(*inputs)
        result = np.array(self.rule(*map(read, inputs)))
        return result if self.device == HOST else upload(result, self.device)

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        if self.form != "into" or any(spec is None for spec in (*inputs, *outputs)):
            return None
        return Into(self._write)

    def _write(self, *operands: Any) -> None:
        *inputs, output = map(read, operands)
        if self.rule is RULES["MatMul"]:
            output[...] = self.rule(*inputs)
            return
        seen = np.broadcast_arrays(*inputs)
        for at in np.ndindex(output.shape):  # one element at a time: operands that overlap wrongly give wrong results
            output[at] = self.rule(*(array[at] for array in seen))


def upload(array: np.ndarray, device: Device) -> Opaque:
    """A tensor of a device that owns its bytes."""
    raw = np.frombuffer(array.tobytes(), np.uint8).copy()
    return Opaque([raw, device], 0, array.dtype, array.shape)


class OwnProvider(ExecutionProvider):
    """Runs the nodes ``wanted`` names (None: every one it has a rule for), on host memory or a device of its own."""

    def __init__(
        self,
        device: Device = HOST,
        wanted: Iterable[str] | None = None,
        form: str = "into",
        reaches: Iterable[Device] = (),
        rules: Mapping[str, Rule] = RULES,
        arena: ArenaConfig | None = None,
    ) -> None:
        self.device, self.wanted = device, None if wanted is None else set(wanted)
        self.allocator, self.transfer = OwnAllocator(device, arena), OwnTransfer(device, reaches)
        self.closed = False
        self._registry = KernelRegistry(self._definition(op, rule, form) for op, rule in rules.items())

    def _definition(self, op: str, rule: Rule, form: str) -> KernelDef:
        inplace = {0: (0, 1) if op in ("Add", "Sub", "Mul") else (0,)} if op in INPLACE else {}
        alias = {0: 0} if op == "Identity" and form == "into" else {}
        create = lambda node: RuleKernel(rule, form, self.device)  # noqa: E731
        return KernelDef("", op, VERSIONS.get(op, 14), create, inplace=inplace, alias=alias)

    def get_capability(self, graph: Any, kernels: Any) -> Any:
        for node in graph.nodes:
            if (self.wanted is None or node.name in self.wanted) and isinstance(kernels.kernel_for(node), KernelDef):
                yield Claim([node])

    def get_kernel_registry(self) -> KernelRegistry:
        return self._registry

    def create_allocators(self) -> Sequence[Allocator]:
        return () if self.device == HOST else [self.allocator]

    def get_data_transfer(self) -> DataTransfer | None:
        return None if self.device == HOST else self.transfer

    def view(self, buffer: Buffer, offset: int, dtype: Any, shape: Any) -> Any:
        if self.device == HOST:
            return super().view(buffer, offset, dtype, shape)
        if len(buffer.handle) == 1:
            buffer.handle.append(self.device)
        return Opaque(buffer.handle, buffer.offset + offset, dtype, shape)

    def close(self) -> None:
        self.closed = True
        assert not self.allocator.live, "the session kept memory"
