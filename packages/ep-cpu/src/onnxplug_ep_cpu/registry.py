"""The kernel registry: every entry of ``onnxplug_kernels`` with NumPy as its namespace, one per process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator

from onnxplug.contract import KernelDef, KernelRegistry, Mismatch, NodeView


class Catalogued(KernelRegistry):
    """The catalogue's entries, made into definitions when their operator is first asked for. ``threads``: the most that BLAS may use
    (None: as many as it likes); ``generates``: see ``registry``."""

    def __init__(self, threads: int | None, generates: bool) -> None:
        super().__init__()
        self._threads, self._generates = threads, generates
        self._entered: set[str] = set()
        self._entering = threading.Lock()

    def kernel_for(self, node: NodeView) -> KernelDef | Mismatch:
        if node.op_type not in self._entered:
            self._enter(node.op_type)
        return super().kernel_for(node)

    def __iter__(self) -> Iterator[KernelDef]:
        self._enter_all()
        return super().__iter__()

    def __len__(self) -> int:
        self._enter_all()
        return super().__len__()

    def _enter(self, op_type: str) -> None:
        from onnxplug_ep_cpu.definitions import definitions

        with self._entering:
            if op_type in self._entered:
                return
            for definition in definitions(op_type, self._threads, self._generates):
                self.add(definition)
            self._entered.add(op_type)

    def _enter_all(self) -> None:
        from onnxplug_ep_cpu.definitions import operators

        for op_type in operators():
            self._enter(op_type)


@functools.cache
def registry(threads: int | None = None, generates: bool = False) -> KernelRegistry:
    """The kernels of ``CPUExecutionProvider``: one object for all sessions that may use every processor (``threads`` None), and one for
    each smaller number of threads. ``generates``: kernels of strings and sequences may be generated code."""
    return Catalogued(threads, generates)
