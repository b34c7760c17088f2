"""One session, many threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core_graphs import expected, model, plans, row, same
from core_providers import CPU, OwnProvider, offered, read
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.contract import HOST, Device, EPFail
from onnxplug.contract.errors import Fail

ACME = Device("acme")
TERMINATED = "Exiting due to terminate flag being set to true"


def feeds_of(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": row(n, seed), "y": row(n, seed + 1)}


def together(work: Callable[[int], None], count: int = 8, seconds: float = 60) -> None:
    """Run ``work(0)``, ``work(1)``, ... in threads that start at once; raises what one of them raised."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"


MIXED = model(
    "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[M] b, float[N,4] c) { [n0] p = Neg(x) [n1] q = Add(p, y) "
    "[n2] r = Transpose(q) s = Shape(r) [n3] t = Transpose(r) [n4] a = Max(t, p) "
    "k = Constant<value_ints=[-1]>() [n5] b = Reshape(a, k) i = Constant<value_int=3>() yes = Constant<value = bool {1}>() "
    "c = Loop(i, yes, q)<body = body (int64 j, bool on, float[N,4] v) => (bool go, float[N,4] w) "
    "{ [b0] go = Identity(on) [b1] u = Sub(v, y) [b2] w = Neg(u) }> }"
)


@pytest.mark.parametrize("specialised", [True, False])
@pytest.mark.parametrize("wanted", [set(), {"n1", "n4", "Loop_0/b1"}, None])
def test_different_shapes_at_once(wanted: set[str] | None, specialised: bool) -> None:
    wants = {(n, seed): expected(MIXED, feeds_of(n, seed)) for n in range(1, 9) for seed in range(3)}
    with plans(specialised), offered(Acme=lambda: OwnProvider(ACME, wanted)):
        session = onnxplug.InferenceSession(MIXED, providers=["Acme", CPU])

        def work(number: int) -> None:
            kept = []
            for turn in range(12):
                n, seed = (number + turn) % 8 + 1, turn % 3
                kept.append((session.run(None, feeds_of(n, seed)), wants[n, seed]))
            for results, want in kept:
                same(results, want)

        together(work)
        session.close()


@given(st.lists(st.integers(1, 40), min_size=8, max_size=8))
@settings(max_examples=8, deadline=None)
def test_the_same_shape_at_once(seeds: list[int]) -> None:
    session = onnxplug.InferenceSession(MIXED, providers=[CPU])
    wants = {seed: expected(MIXED, feeds_of(5, seed)) for seed in seeds}

    def work(number: int) -> None:
        for _ in range(6):
            same(session.run(None, feeds_of(5, seeds[number])), wants[seeds[number]])

    together(work)


class Watched(OwnProvider):
    """Counts the kernels that run at the same time; where several may, the first waits for a second one."""

    def __init__(self, concurrent: bool) -> None:
        self.concurrent_run = concurrent
        self.now = self.most = 0
        self._counting = threading.Condition()
        super().__init__(HOST, rules={"Neg": self._slow})

    def _slow(self, x: Any) -> Any:
        with self._counting:
            self.now += 1
            self.most = max(self.most, self.now)
            self._counting.notify_all()
            self._counting.wait_for(lambda: self.most > 1, 30 if self.concurrent_run else 0.002)
            self.now -= 1
        return np.negative(x)


@pytest.mark.parametrize("concurrent", [True, False])
def test_a_provider_may_ask_for_one_run_at_a_time(concurrent: bool) -> None:
    source = model(
        "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { p = Neg(x) q = Neg(p) r = Neg(q) a = Add(r, y) }"
    )
    with offered(Watched=lambda: Watched(concurrent)) as made:
        session = onnxplug.InferenceSession(source, providers=["Watched", CPU])

        def work(number: int) -> None:
            feeds = feeds_of(1 + number % 2)
            same(session.run(None, feeds), [feeds["y"] - feeds["x"]])

        together(work)
        assert (made["Watched"][-1].most == 1) is (not concurrent)
        session.close()


ENDLESS = model(
    "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { p = Neg(x) yes = Constant<value = bool {1}>() "
    "a = Loop( , yes, p)<body = b (int64 i, bool on, float[N,4] v) => (bool go, float[N,4] w) "
    "{ go = Identity(on) w = Max(v, y) }> }"
)
LONG_SCAN = model(
    "g (float[N,4] x, float[N,4] y) => (float[4] a, float[N,4] b) { z = Constant<value_ints=[0]>() "
    "s = ReduceMax<keepdims=0>(y, z) a, b = Scan<num_scan_inputs=1, body = body (float[4] v, float[4] e) => "
    "(float[4] w, float[4] f) { w = Add(v, e) f = Max(v, e) }>(s, x) }"
)


@pytest.mark.parametrize("source", [ENDLESS, LONG_SCAN], ids=["loop", "scan"])
@pytest.mark.parametrize("profiling", [False, True])
def test_the_terminate_flag_stops_a_run_that_takes_long(source: bytes, profiling: bool, tmp_path: Any) -> None:
    options = onnxplug.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = profiling, str(tmp_path / "p")
    session = onnxplug.InferenceSession(source, options, providers=[CPU])
    run_options = onnxplug.RunOptions()
    timer = threading.Timer(0.2, lambda: setattr(run_options, "terminate", True))
    timer.start()
    with pytest.raises(Fail, match=TERMINATED):
        session.run(None, feeds_of(2_000_000 if source is LONG_SCAN else 2), run_options)
    timer.join()
    if source is LONG_SCAN:
        run_options.terminate = False
        same(session.run(None, feeds_of(3), run_options), expected(source, feeds_of(3)))


def test_one_terminated_run_leaves_others_alone() -> None:
    source = model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { p = Neg(x) a = Add(p, y) }")
    session, wants = onnxplug.InferenceSession(source, providers=[CPU]), expected(source, feeds_of(3))

    def work(number: int) -> None:
        options = onnxplug.RunOptions()
        options.terminate = number % 2 == 1
        for _ in range(20):
            if options.terminate:
                with pytest.raises(Fail, match=TERMINATED):
                    session.run(None, feeds_of(3), options)
            else:
                same(session.run(None, feeds_of(3), options), wants)

    together(work)


def test_shrinking_while_others_run() -> None:
    session = onnxplug.InferenceSession(MIXED, providers=[CPU])
    runner = session._engine.built.runner

    def work(number: int) -> None:
        for turn in range(30):
            if number == 0:
                runner.release()
                for memory in session._engine.built.runtime.memories:
                    memory.allocator.shrink()
            else:
                n = turn % 7 + number
                results = session.run(None, feeds_of(n))
                same(results[:1], [np.maximum(feeds_of(n)["y"] - feeds_of(n)["x"], -feeds_of(n)["x"])])

    together(work)


def test_a_kernel_that_fails_in_one_thread_fails_there_only() -> None:
    def picky(x: Any) -> Any:
        if read(x).flat[0] > 50:
            raise ArithmeticError("too large")
        return np.negative(x)

    source = model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { p = Add(x, y) a = Neg(p) }")
    with offered(Picky=lambda: OwnProvider(rules={"Neg": picky}, form="returns")):
        session = onnxplug.InferenceSession(source, providers=["Picky", CPU])

        def work(number: int) -> None:
            feeds = feeds_of(3, number)
            feeds["x"][0, 0] = 99 if number % 2 else 0
            for _ in range(10):
                if number % 2:
                    with pytest.raises(Fail, match="too large"):
                        session.run(None, feeds)
                else:
                    same(session.run(None, feeds), [-(feeds["x"] + feeds["y"])])

        together(work)


def test_a_provider_that_fails_in_all_threads_at_once() -> None:
    def gone(x: Any) -> Any:
        time.sleep(0.005)
        raise EPFail("the device is gone")

    source = model("g (float[N,4] x, float[N,4] y) => (float[N,4] a) { p = Add(x, y) a = Neg(p) }")
    with offered(Gone=lambda: OwnProvider(ACME, rules={"Neg": gone}, form="returns")):
        session = onnxplug.InferenceSession(source, providers=["Gone", CPU])

        def work(number: int) -> None:
            for turn in range(3):
                feeds = feeds_of(3, number + turn)
                same(session.run(None, feeds), [-(feeds["x"] + feeds["y"])])

        together(work)
        assert session.get_providers() == [CPU]


def test_sessions_made_in_many_threads() -> None:
    def work(number: int) -> None:
        session = onnxplug.InferenceSession(MIXED, providers=[CPU])
        same(session.run(None, feeds_of(number + 1)), expected(MIXED, feeds_of(number + 1)))
        session.close()

    together(work)
