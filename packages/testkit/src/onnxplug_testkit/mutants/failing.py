"""L2 and L4: mutants that write too far, and those that do not outlive a lost device, a fork or a model without sense."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np

from onnxplug.contract import Into, Kernel, KernelDef, NodeView, SessionContext
from onnxplug.contract.errors import DeviceReset
from onnxplug_ep_reference.memory import SimTensor
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import forgiving, subject, with_kernels
from onnxplug_testkit.subject import Subject


class _Far(Kernel):
    """Writes an element more than there is room for."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __call__(self, *inputs: Any) -> Any:
        return self._kernel(*inputs)

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        into = self._kernel.bind(inputs, outputs)
        if into is None:
            return None

        def call(*operands: Any) -> None:
            into.call(*operands)
            target = operands[-1]
            if isinstance(target, SimTensor):
                block, end = target._block, target._offset + target.nbytes
                if block.data is not None and end + 4 <= block.nbytes:
                    block.data[end : end + 4] ^= 0xFF

        return Into(call, into.workspace)


@mutant("kernels.guard_bands", "Neg")
def writes_a_vector_too_far() -> Subject:
    """A kernel rounds the number of elements up and writes behind its output."""
    return with_kernels(("Neg",), lambda definition, node: _Far(definition.create(node)), options={})


_lost: list[str] = []


class _Grieving(ReferenceProvider):
    """Remembers for the whole process that a device was lost."""

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        if _lost:
            raise RuntimeError(_lost[0])
        super().__init__(options, context)

    def on_run_start(self, options: Any) -> None:
        """There is nothing to prepare."""

    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        if isinstance(error, DeviceReset):
            _lost.append("the device was lost before")


@mutant("robust.device_lost")
def grieves_for_its_device() -> Subject:
    """Makes no session in a process that once lost the device."""
    _lost.clear()
    return subject(_Grieving)


_asked: queue.Queue[threading.Event] = queue.Queue()
_workers: list[threading.Thread] = []


def _work() -> None:
    while True:
        _asked.get().set()


class _Delegating(ReferenceProvider):
    """Has each run acknowledged by the one worker thread of the process."""

    def on_run_start(self, options: Any) -> None:
        if not _workers:
            _workers.append(threading.Thread(target=_work, daemon=True))
            _workers[0].start()
        event = threading.Event()
        _asked.put(event)
        event.wait()


@mutant("robust.fork")
def waits_for_a_lost_thread() -> Subject:
    """In a forked child it waits for a worker that only the parent has."""
    return subject(_Delegating)


@mutant("robust.malformed_models")
def makes_sense_of_nonsense() -> Subject:
    """Returns its input where an attribute has no meaning."""
    return forgiving(("Concat", "Transpose", "Softmax"), lambda inputs: inputs[0].copy())


@mutant("kernels.misfits", "Conv", "ScatterND", "Where")
def answers_misfits() -> Subject:
    """Returns what it is fed where operands do not go together."""
    return forgiving(("Conv", "ScatterND", "Where"), lambda inputs: inputs[-1].copy())


@mutant("kernels.misfits", "Split")
def shortens_what_is_asked_for() -> Subject:
    """Gives parts as far as there are elements, where the parts asked for are more."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)

        def call(x: Any, *parts: Any) -> Any:
            if not parts or x.size == 0:
                return kernel(x, *parts)
            axis = node.attributes.get("axis", 0)
            ends = np.minimum(np.cumsum(parts[0]), x.shape[axis])
            return tuple(each.copy() for each in np.split(x, ends, axis)[: len(parts[0])])

        return call

    return with_kernels(("Split",), create)


@mutant("kernels.misfits", "Gemm")
def is_wrong_after_a_misfit() -> Subject:
    """Raises where operands do not go together, and halves what it is asked for afterwards."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel, failed = definition.create(node), list[bool]()

        def call(*inputs: Any) -> Any:
            try:
                result = kernel(*inputs)
            except Exception:
                failed.append(True)
                raise
            return result / result.dtype.type(2) if failed else result

        return call

    return with_kernels(("Gemm",), create)
