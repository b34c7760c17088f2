"""What a lowering sees of a node whose shapes are known, and the kernel that turns its answer into calls."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from onnxplug.contract import DataTransfer, Into, Kernel, NodeView, TensorSpec, element_of
from onnxplug.contract.errors import InvalidArgument
from onnxplug_ep_opencl.faults import Faults
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.tiles import AnyTile, Work
from onnxplug_ep_opencl.launch import BoundJob, Job, Launch
from onnxplug_ep_opencl.memory import ClAllocator, ClTensor
from onnxplug_ep_opencl.queue import Queue
from onnxplug_ep_opencl.shapes import output_specs
from onnxplug_kernel_text.nodes.call import NodeCall, Ref, ValueWanted
from onnxplug_kernel_text.nodes.faults import OUT_OF_BOUNDS
from onnxplug_kernel_text.types import OF_ELEMENT

KEPT = 16
"""Jobs that a kernel keeps for shapes no plan knew."""
PANELS = "panels"
"""Key, with their width, of weights packed in panels."""


class Owned:
    """Tensors that a kernel keeps on the device for itself, for the shapes of one plan. ``shared`` holds those that serve every plan:
    packed weights."""

    def __init__(self, allocator: ClAllocator, transfer: DataTransfer, shared: dict[tuple[str, Any], ClTensor]) -> None:
        self._allocator, self._transfer, self._shared = allocator, transfer, shared
        self.tensors: list[ClTensor | Faults] = []

    def part(self, shared: dict[tuple[str, Any], ClTensor]) -> Owned:
        """The same for a part of a kernel, which keeps its own in ``shared``."""
        made = Owned(self._allocator, self._transfer, shared)
        made.tensors = self.tensors
        return made

    @property
    def widths(self) -> set[int]:
        """Of the panels that weights are packed in already."""
        return {key[1] for key in self._shared if key[0] == PANELS}

    def ref(self, key: tuple[str, Any], make: Callable[[], np.ndarray]) -> Ref:
        """What ``make()`` gives, as a kernel's argument; made once for all plans."""
        tensor = self._shared.get(key)
        if tensor is None:
            tensor = self._shared[key] = self._sent(make())
        return self.held(tensor)

    def table(self, array: np.ndarray) -> Ref:
        """An array that depends on shapes, as a kernel's argument."""
        return self.held(self._sent(array))

    def _sent(self, array: np.ndarray) -> ClTensor:
        array = np.ascontiguousarray(array)
        tensor = self._allocator.tensor(array.dtype, array.shape)
        self._transfer.copy(array, tensor)
        return tensor

    def held(self, tensor: ClTensor) -> Ref:
        """A tensor on the device as a kernel's argument."""
        self.tensors.append(tensor)
        return Ref(-len(self.tensors), tensor.dtype.itemsize)

    def told(self, faults: Faults) -> Ref:
        """Where the launching thread is told of errors, as a kernel's argument."""
        self.tensors.append(faults)
        return Ref(-len(self.tensors), 4)


class Tuner(Protocol):
    """Finds tiles by measuring."""

    def best(self, call: Call, work: Work, make: Callable[[Call], Any]) -> AnyTile:
        """The fastest tile for ``work``, which is what ``make`` makes of the call."""


@dataclass(frozen=True)
class Call(NodeCall):
    """A node with the shapes of one plan, the device it is for and what its kernel keeps there."""

    target: Target
    owned: Owned
    packed: tuple[int, ...] = ()
    """Constant inputs that are read as ``owned`` tensors only."""
    watch: Callable[[str, type[Exception]], int] | None = None
    """By which number the node's kernel tells of an error."""
    faults: Faults | None = None
    """Where it tells."""
    tuner: Tuner | None = None
    tile: AnyTile | None = None
    """The tile of a product, where that is decided."""

    def fault(self, text: str = OUT_OF_BOUNDS, error: type[Exception] = InvalidArgument) -> tuple[Ref, int]:
        """Where a kernel leaves the number, and the number, when it meets what ``text`` says, an index out of bounds as a rule, and
        onnxruntime raises as ``error``."""
        assert self.watch is not None and self.faults is not None
        return self.owned.told(self.faults), self.watch(text, error)


@dataclass(frozen=True)
class Session:
    """What the kernels of one session have in common."""

    target: Target
    queue: Queue
    allocator: ClAllocator
    transfer: DataTransfer
    faults: Faults
    tuner: Tuner | None = None


Lower = Callable[[Call], "Job | Sequence[Launch]"]
Largest = Callable[[NodeView, Sequence[TensorSpec | None]], TensorSpec]


def text_type(dtype: np.dtype) -> str:
    """A dtype's name in kernel text."""
    return OF_ELEMENT[element_of(dtype)]


class DeviceKernel(Kernel):
    """One node's kernel: a lowering, in both of the contract's forms."""

    def __init__(self, lower: Lower, session: Session, node: NodeView, packed: tuple[int, ...] = ()) -> None:
        self._lower, self._target, self._queue = lower, session.target, session.queue
        self._tuner = session.tuner
        self._watch, self._faults = functools.partial(session.faults.watch, node.name), session.faults
        self._allocator, self._node, self.packed = session.allocator, node, packed
        self._transfer, self._weights = session.transfer, dict[tuple[str, Any], ClTensor]()
        self._known: OrderedDict[Any, tuple[BoundJob, int, list[TensorSpec | None]]] = OrderedDict()
        self._lock = threading.Lock()

    def bind(self, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]) -> Into | None:
        try:
            bound, workspace = self._bound(inputs, outputs)
        except ValueWanted:
            return None
        return Into(bound, workspace)

    def __call__(self, *inputs: Any) -> Any:
        key = tuple(
            (x.shape, x.tobytes()) if isinstance(x, np.ndarray) else None if x is None else x.shape for x in inputs
        )
        with self._lock:
            found = self._known.pop(key, None)
            if found is None:
                specs = [self._constant(n) if x is None else _spec(x) for n, x in enumerate(inputs)]
                outputs = self._outputs(specs)
                found = (*self._bound(specs, outputs), outputs)
            self._known[key] = found
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        bound, workspace, made = found
        results = [None if spec is None else self._allocator.tensor(spec.dtype, spec.shape) for spec in made]
        scratch = [self._allocator.tensor(np.dtype(np.uint8), (workspace,))] if workspace else []
        with self._queue.guard():
            bound(*inputs, *results, *scratch)
        return results[0] if len(results) == 1 else tuple(results)

    def _outputs(self, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
        return output_specs(self._node, inputs)

    def _bound(self, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]) -> tuple[BoundJob, int]:
        inputs = [self._constant(n) if n in self.packed else spec for n, spec in enumerate(inputs)]
        node, owned = self._node, Owned(self._allocator, self._transfer, self._weights)
        call = Call(
            node.op_type,
            node.since_version,
            node.attributes,
            inputs,
            outputs,
            self._target,
            owned,
            self.packed,
            self._watch,
            self._faults,
            self._tuner,
        )
        lowered = self._lower(call)
        job = lowered if isinstance(lowered, Job) else Job(lowered)
        return BoundJob(self._queue, job, owned.tensors, (node.name, (node,))), job.room(len(inputs) + len(outputs))

    def _constant(self, index: int) -> TensorSpec | None:
        """The spec of an input that is omitted, or constant and packed."""
        if index not in self.packed:
            return None
        value = self._node.inputs[index]
        assert value is not None and value.constant is not None
        return TensorSpec(value.constant.dtype, value.constant.shape, value.constant)


class CountedKernel(DeviceKernel):
    """The kernel of a node whose result is as long, along one dimension, as the data decides. The lowering writes it, dense, to an output
    with room for the longest there may be, which is what ``largest`` says of the node and its inputs, and to a second one, an int64, how
    long it is, for which the host waits. ``counted`` says which dimension that is, of a result of so many."""

    def __init__(
        self,
        lower: Lower,
        session: Session,
        node: NodeView,
        largest: Largest,
        counted: Callable[[NodeView, int], int],
    ) -> None:
        super().__init__(lower, session, node)
        self._largest, self._counted = largest, counted

    def bind(self, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]) -> None:
        return None

    def __call__(self, *inputs: Any) -> Any:
        made, total = super().__call__(*inputs)
        axis, count = self._counted(self._node, len(made.shape)), np.zeros(1, np.int64)
        if made.shape[axis]:
            self._transfer.copy(total, count)
        shape = (*made.shape[:axis], int(count[0]), *made.shape[axis + 1 :])
        return ClTensor(made.block, made.offset, made.dtype, shape)

    def _outputs(self, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
        return [self._largest(self._node, inputs), TensorSpec(np.dtype(np.int64), (1,))]


def _spec(x: Any) -> TensorSpec:
    if isinstance(x, ClTensor):
        return TensorSpec(x.dtype, x.shape)
    array = np.asarray(x)
    return TensorSpec(array.dtype, array.shape, array)
