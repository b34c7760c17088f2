"""How many threads NumPy's BLAS may use while a session computes with it.

A BLAS has one setting for the whole process, so it is set when the first kernel of a limited session begins and put back
when the last one ends. A session that may use every processor costs nothing, nor does what runs without BLAS.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from onnxplug.contract import Into, Kernel, TensorSpec


class BlasThreads:
    """The thread count of every BLAS loaded into this process."""

    def __init__(self, libraries: list[Any]) -> None:
        self._libraries = libraries
        self._before: list[int] = []
        self._runs = 0
        self._lock = threading.Lock()

    def limit(self, threads: int) -> None:
        """Allow ``threads`` threads until the matching ``restore``; of limits in force at once, the last one counts."""
        with self._lock:
            if self._runs == 0:
                self._before = [library.get_num_threads() for library in self._libraries]
            self._runs += 1
            for library in self._libraries:
                library.set_num_threads(threads)

    def restore(self) -> None:
        """Put the counts from before the first limit back once every limit has ended."""
        with self._lock:
            self._runs -= 1
            if self._runs == 0:
                for library, threads in zip(self._libraries, self._before, strict=True):
                    library.set_num_threads(threads)

    @contextmanager
    def limited(self, threads: int) -> Iterator[None]:
        """Within this context no BLAS uses more than ``threads`` threads."""
        self.limit(threads)
        try:
            yield
        finally:
            self.restore()


class LimitedKernel(Kernel):
    """A kernel that computes with BLAS, kept to the threads of its session."""

    def __init__(self, kernel: Kernel | Callable[..., Any], threads: int) -> None:
        self._kernel, self._threads, self._blas = kernel, threads, blas_threads()
        self.packed = kernel.packed if isinstance(kernel, Kernel) else ()

    def __call__(self, *inputs: Any) -> Any:
        with self._blas.limited(self._threads):
            return self._kernel(*inputs)

    def bind(self, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]) -> Into | None:
        into = self._kernel.bind(inputs, outputs) if isinstance(self._kernel, Kernel) else None
        return None if into is None else Into(functools.partial(self._into, into.call), into.workspace)

    def _into(self, call: Callable[..., object], *operands: Any) -> None:
        with self._blas.limited(self._threads):
            call(*operands)


@functools.cache
def blas_threads() -> BlasThreads:
    """The process's BLAS libraries, looked for once."""
    from threadpoolctl import ThreadpoolController

    return BlasThreads(ThreadpoolController().select(user_api="blas").lib_controllers)
