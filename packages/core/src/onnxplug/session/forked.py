"""Sessions in a process that was forked from the one that made them.

A child has the parent's memory, but none of its threads and none of its devices' state; locks may be held by threads that
are not there. A session is therefore made anew by its first use in the child, and says so. Where a provider keeps its
tensors on a device, which most device libraries do not allow after a fork, it raises Fail instead and explains.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from onnxplug.contract.errors import Fail

if TYPE_CHECKING:
    from onnxplug.session.iobinding import IOBinding
    from onnxplug.session.session import InferenceSession

_sessions: weakref.WeakSet[InferenceSession] = weakref.WeakSet()
_kept: list[Any] = []
"""Engines of the parent: ending them here would touch what belongs to the parent."""
_of_parent: weakref.WeakKeyDictionary[InferenceSession, list[Any]] = weakref.WeakKeyDictionary()
"""The engines that a session had in processes before this one, which those it is made anew with here stand for."""


def watch(session: InferenceSession) -> None:
    """Have a session treated so after a fork."""
    _sessions.add(session)


def goes_on(binding: IOBinding) -> bool:
    """Whether a binding was made for an engine of its session's in a parent process; it is for the session's own one from now on."""
    session: Any = binding._session
    if not any(engine is binding._made_for for engine in _of_parent.get(session, ())):
        return False
    binding._feedable = session._feedable()  # the session is made anew, unless it has been
    binding._made_for, binding._latest = session._engine, None  # what was made ready waits for threads of the parent's
    return True


class _Foreign:
    """The engine of a session in a child process. Whatever is asked of it makes the session anew first."""

    def __init__(self, session: InferenceSession, engine: Any, parent: int) -> None:
        self._session, self._parent = weakref.ref(session), parent
        self._devices = sorted({str(d) for d in _device_spaces(engine)})
        self._providers = engine.selection.entries
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        session = self._session()
        assert session is not None
        if self._devices:
            raise Fail(
                f"This session was made in process {self._parent}, from which this one was forked, and keeps memory on "
                f"{', '.join(self._devices)}, which cannot be used here. Make sessions after the fork, or start processes "
                "with multiprocessing's 'spawn' or 'forkserver'."
            )
        with self._lock:
            if vars(session)["_engine"] is self:
                session._log.warning(
                    "this session was made in process %d, from which this one was forked: it is made anew. Make sessions "
                    "after the fork to save the time and the memory.",
                    self._parent,
                )
                session._create(self._providers, None)
        return getattr(session._engine, name)


def _device_spaces(engine: Any) -> list[Any]:
    return [space.device for space in engine.built.runtime.memories if space.transfer is not None]


def _in_child() -> None:
    from onnxplug.session.engine import Engine

    for session in list(_sessions):
        engine = session._engine
        if isinstance(engine, Engine):
            _kept.append(engine)
            _of_parent.setdefault(session, []).append(engine)
            engine.lifetime.abandon()
            session._remaking = threading.Lock()
            session._engine = _Foreign(session, engine, os.getppid())  # type: ignore[assignment]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
