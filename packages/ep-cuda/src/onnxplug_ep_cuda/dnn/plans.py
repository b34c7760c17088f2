"""Which of cuDNN's plans computes a problem: option ``cudnn_conv_algo_search``."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import cudnn

from onnxplug.contract.cache import DiskCache

log = logging.getLogger("onnxplug.cuda")

Search = Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"]
SMALL_WORKSPACE = 32 << 20
"""Bytes a plan may take with ``cudnn_conv_use_max_workspace`` 0, as with onnxruntime."""
TIMED = 8
"""Plans that EXHAUSTIVE builds and times: each may take a second to compile."""

_MODE = cudnn.heur_mode
_MODES = {
    "EXHAUSTIVE": [_MODE.A, _MODE.B, _MODE.FALLBACK],
    "HEURISTIC": [_MODE.A, _MODE.FALLBACK],
    "DEFAULT": [_MODE.FALLBACK],
}
_NOTE = cudnn.numerical_note
IN_PYTHON = ("sdpa_fwd", "frost")
"""Beginnings of the names of the frontend's own engines, which compile with another toolchain when a plan is built: only those of the
library are asked for."""


class Problem(Protocol):
    """What cuDNN is asked for: a frozen dataclass, whose text tells it from every other."""

    @property
    def dtype(self) -> str:
        """Type of its tensors."""

    def graph(self, **place: Any) -> Any:
        """cuDNN's graph of it."""

    def sizes(self) -> dict[int, int]:
        """Elements of each tensor by identifier."""


Timer = Callable[[Problem, Any, int], float]
"""(problem, its graph, index of a plan that is built) -> seconds of one execution."""


class NoPlan(Exception):
    """cuDNN has no plan for a problem, for the reason it gives."""


@dataclass(frozen=True)
class Planner:
    """How plans are found. ``place`` and ``device`` say for what device, as arguments of a graph and in words; ``time`` measures a plan,
    for EXHAUSTIVE."""

    search: Search
    tf32: bool
    max_workspace: bool
    place: dict[str, Any]
    device: str
    time: Timer | None = None
    store: DiskCache | None = None

    def plan(self, problem: Problem) -> Any:
        """A graph with its plan built, ready to be executed. ``NoPlan`` where cuDNN has none."""
        key = self.key(problem)
        kept = self.store.get(key) if self.store is not None else None
        if kept is not None:
            try:
                found = cudnn.pygraph(**self.place)
                found.deserialize(kept)
                return found
            except (RuntimeError, cudnn.cudnnGraphNotSupportedError) as error:
                log.warning("a plan of cuDNN that was kept on disk is of no use here and is made again: %s", error)
        try:
            found = self._search(problem)
        except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
            raise NoPlan((str(error) or type(error).__name__).splitlines()[0]) from error
        if self.store is not None:
            self.store.put(key, bytes(found.serialize(as_bytes=True)))
        return found

    def key(self, problem: Problem) -> str:
        """What a plan is kept under: all that decides it."""
        parts = (
            problem,
            self.search,
            self.tf32,
            self.max_workspace,
            self.device,
            cudnn.backend_version(),
            cudnn.__version__,
        )
        return hashlib.blake2b(repr(parts).encode(), digest_size=20).hexdigest()

    def _search(self, problem: Problem) -> Any:
        made = problem.graph(**self.place)
        made.validate()
        made.build_operation_graph()
        made.create_execution_plans(_MODES[self.search])
        made.deselect_engines(list(IN_PYTHON))
        if problem.dtype == "float32" and not self.tf32:
            made.deselect_numeric_notes([_NOTE.TENSOR_CORE, _NOTE.DOWN_CONVERT_INPUTS])
        if not self.max_workspace:
            made.deselect_workspace_greater_than(SMALL_WORKSPACE)
        made.check_support()
        if self.search == "EXHAUSTIVE" and self.time is not None:
            self._fastest(problem, made)
        else:
            made.build_plans()
        return made

    def _fastest(self, problem: Problem, made: Any) -> None:
        """Build plans, best guess first, time them, and select the fastest. Plans that do not build, or not run, are out of the race."""
        assert self.time is not None
        times: dict[int, float] = {}
        for index in range(made.get_execution_plan_count()):
            if len(times) == TIMED:
                break
            try:
                made.build_plan_at_index(index)
                times[index] = self.time(problem, made, index)
            except MemoryError as error:
                log.warning("There is no memory left to time more of cuDNN's plans: %s", error)
                break
            except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError) as error:  # ValueError: deselected
                log.debug("cuDNN's plan %d is out: %s", index, error)
        if times:
            made.build_plan_at_index(min(times, key=times.__getitem__))
        else:
            made.build_plans()
