"""L4: a user who stops a run at the keyboard."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np

from onnxplug_testkit.check import check
from onnxplug_testkit.checks.graph import agree
from onnxplug_testkit.models import dag, expected, open_session
from onnxplug_testkit.subject import Subject

FIRST, SPREAD = 12, 13
"""Places in a run at which it is interrupted: so many at its start, and so many from start to end."""
OTHERS = {"onnxplug", "numpy", *sys.stdlib_module_names}
"""Packages whose calls are not the provider's."""


@check("robust.interrupts")
def interrupts(subject: Subject, seed: int) -> None:
    """A KeyboardInterrupt at any call in the provider's code ends the run as that, the next run is right, and no memory is lost."""
    rng = np.random.default_rng(seed)
    made = dag(subject, rng)
    feeds = {name: rng.standard_normal((5, 16)).astype(np.float32) for name in ("x", "z")}
    want = expected(made, feeds, subject.name)
    with subject.allocators() as allocators, open_session(subject, made) as session:
        agree(session.run(None, feeds), want)
        before, hook = sys.getprofile(), sys.unraisablehook
        counting = _Finger(sys.maxsize)
        sys.setprofile(counting)
        try:
            session.run(None, feeds)
        finally:
            sys.setprofile(before)
        last = max(sys.maxsize - counting.left - 1, 0)
        for number in sorted({*range(min(FIRST, last)), *np.linspace(0, last, SPREAD).astype(int).tolist()}):
            finger = _Finger(number)
            got: list[Any] | None = None
            dropped: list[Any] = []
            # What finalizers and callbacks of C code raise is dropped, which is no fault of the provider's.
            sys.unraisablehook = dropped.append
            sys.setprofile(finger)
            try:
                got = session.run(None, feeds)
            except KeyboardInterrupt:
                assert finger.pressed, "a run raises KeyboardInterrupt of its own accord"
            except Exception as error:
                raise AssertionError(
                    f"a KeyboardInterrupt in {finger.where} ends the run as {type(error).__name__}: {error}"
                ) from error
            else:
                assert dropped or not finger.pressed, f"a KeyboardInterrupt in {finger.where} does not end the run"
            finally:
                sys.setprofile(before)
                sys.unraisablehook = hook
            if got is not None:
                agree(got, want, what=f"the run in which a KeyboardInterrupt in {finger.where} was dropped")
            agree(session.run(None, feeds), want, what=f"the run after a KeyboardInterrupt in {finger.where}")
    left = sum(a.stats().bytes_in_use for a in allocators)
    assert left == 0, (
        f"{left} bytes of the provider's memory are in use after runs were interrupted and their session closed"
    )


class _Finger:
    """Raises KeyboardInterrupt when ``after`` Python functions of the provider were called."""

    def __init__(self, after: int) -> None:
        self.left, self.pressed, self.where = after, False, "no function"

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        module = str(frame.f_globals.get("__name__"))
        if event != "call" or self.pressed or module.partition(".")[0] in OTHERS:
            return
        if self.left:
            self.left -= 1
            return
        self.pressed, self.where = True, f"{module}.{frame.f_code.co_qualname}"
        raise KeyboardInterrupt
