"""L4: a process that forks."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks import robust
from onnxplug_testkit.checks.graph import ATOL, RTOL
from onnxplug_testkit.models import chain, expected, open_session
from onnxplug_testkit.subject import Subject

RIGHT, REFUSED, WRONG, FAILED = range(4)


@check("robust.fork")
def fork(subject: Subject, seed: int) -> None:
    """A forked child either gets right results, from the parent's session and from its own, or a status error; the parent goes on."""
    if not hasattr(os, "fork"):
        raise Unsupported("fork")
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((64, 16)).astype(np.float32)
    want = expected(made, {"x": x}, subject.name)[0]

    def agrees(session: Any) -> bool:
        return bool(np.allclose(session.run(None, {"x": x})[0], want, RTOL, ATOL))

    with open_session(subject, made) as session:
        assert agrees(session), "the session is wrong before the process forks"

        def own() -> bool:
            with open_session(subject, made) as another:
                return agrees(another)

        for whose, work in (("the parent's session", lambda: agrees(session)), ("a session of its own", own)):
            answer = _in_child(work)
            assert answer != WRONG, f"a forked child gets a wrong result from {whose}"
            assert answer in (RIGHT, REFUSED), f"a forked child with {whose} {answer}"
            assert agrees(session), f"the parent's session is wrong after a child ran {whose}"


def _in_child(work: Callable[[], bool]) -> int | str:
    """What ``work()`` gives in a forked child: a code, or in words how the child ended."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python warns of forking with threads, which is what is tried here
        child = os.fork()
    if child == 0:
        code = FAILED
        try:
            code = RIGHT if work() else WRONG
        except STATUS_ERRORS:
            code = REFUSED
        finally:
            os._exit(code)
    deadline = time.monotonic() + robust.PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code in (RIGHT, REFUSED, WRONG) else "fails" if code > 0 else f"is ended by signal {-code}"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"is stuck after {robust.PATIENCE} seconds"
