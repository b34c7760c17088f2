"""The short form of the soak: memory does not grow with sessions made or with runs, and results do not differ between threads."""

from __future__ import annotations

import numpy as np
import pytest
import soak


def test_sessions_leave_nothing_behind() -> None:
    assert soak.sessions(100, [soak.CPU]) < soak.NOISE


def test_threads_do_not_disturb_each_other() -> None:
    assert soak.runs(8, 200, [soak.CPU]) < soak.NOISE


def test_the_soak_notices_what_is_kept() -> None:
    if not soak.resident():
        pytest.skip("this system does not tell how much memory a process has")
    kept: list[np.ndarray] = []  # of a size that is never cut from memory the process has already
    assert soak.grown(lambda number: kept.append(np.ones(5_000_000)), 1, 3) > soak.NOISE
