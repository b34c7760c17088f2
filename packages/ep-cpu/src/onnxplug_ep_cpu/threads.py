"""How many threads NumPy's BLAS may use while sessions run.

A BLAS has one setting for the whole process, so it is set when the first run of a limited session begins and put back
when the last one ends. A session that may use every processor costs nothing.
"""

from __future__ import annotations

import functools
import threading
from typing import Any


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


@functools.cache
def blas_threads() -> BlasThreads:
    """The process's BLAS libraries, looked for once."""
    from threadpoolctl import ThreadpoolController

    return BlasThreads(ThreadpoolController().select(user_api="blas").lib_controllers)
