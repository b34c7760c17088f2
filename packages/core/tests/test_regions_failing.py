"""Regions that cannot be compiled or fail: who takes over, and what is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core_graphs import expected, model, same
from core_providers import CPU, OwnProvider, offered
from core_regions import ACME, CHAIN, Compiled, Compiling, feeds_of, session_on

import onnxplug
from onnxplug.contract import HOST, Claim, Device, EPFail
from onnxplug.contract.errors import Fail

WAYS = ["compile raises", "compile gives nothing", "compile gives something else", "compile gives too few"]


@pytest.mark.parametrize("way", WAYS)
def test_the_next_provider_takes_what_cannot_be_compiled(way: str, caplog: pytest.LogCaptureFixture) -> None:
    with offered(Acme=lambda: Compiling(ACME, {way}), Bolt=OwnProvider), caplog.at_level(logging.WARNING):
        session = session_on(providers=["Acme", "Bolt", CPU])
        assert "Acme could not compile 1 region(s)" in caplog.text
        same(session.run(None, feeds_of(3)), expected(CHAIN, feeds_of(3)))
        assert set(session.placement().values()) == {"Bolt"}
        for node in session.explain().nodes:
            assert "compil" in node["reasons"]["Acme"], node
            assert "Bolt" in node["reasons"][CPU], "not of the one that gave up"
        if way == "compile raises":
            assert "this chip cannot" in str(session.explain())
        session.close()


@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_compiled_is_an_error_where_fallback_is_disabled(way: str) -> None:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_compile_fallback", "1")
    with offered(Acme=lambda: Compiling(HOST, {way})) as made:
        with pytest.raises(Fail, match="Acme"):
            session_on(sess_options=options)
        assert made["Acme"][-1].closed


FAILURES = ["fails", "shapes fail"]


@pytest.mark.parametrize("way", FAILURES)
@pytest.mark.parametrize("device", [HOST, ACME])
def test_a_provider_that_fails_is_left_out(way: str, device: Device, caplog: pytest.LogCaptureFixture) -> None:
    with offered(Acme=lambda: Compiling(device, {way}), Bolt=OwnProvider), caplog.at_level(logging.WARNING):
        session = session_on(providers=["Acme", "Bolt", CPU])
        feeds = feeds_of(3)
        before = {name: array.copy() for name, array in feeds.items()}
        same(session.run(None, feeds), expected(CHAIN, feeds))
        same(list(feeds.values()), list(before.values()))
        assert "Acme failed at run time" in caplog.text and "the device is gone" in caplog.text
        assert session.get_providers() == ["Bolt", CPU] and set(session.placement().values()) == {"Bolt"}
        caplog.clear()
        same(session.run(["a"], feeds_of(4)), expected(CHAIN, feeds_of(4)))
        assert not caplog.text
        session.close()


def test_a_failing_provider_is_an_error_where_fallback_is_disabled() -> None:
    with offered(Acme=lambda: Compiling(HOST, {"fails"})):
        session = session_on(enable_fallback=0)
        for _ in range(2):
            with pytest.raises(EPFail, match="the device is gone"):
                session.run(None, feeds_of(3))
        session.enable_fallback()
        same(session.run(None, feeds_of(3)), expected(CHAIN, feeds_of(3)))


class Unplugged(OwnProvider):
    """A device that is pulled out: from then on its memory cannot be used."""

    def __init__(self, when: Callable[[list[Any]], bool]) -> None:
        super().__init__(ACME)
        copy = self.transfer.copy

        def failing(source: Any, destination: Any, stream: Any = None) -> None:
            if when(self.transfer.log):
                raise EPFail("no answer from the bus")
            copy(source, destination, stream)

        self.transfer.copy = failing  # type: ignore[method-assign]


MIXED = model(
    "g (float[N,4] x, float[N,4] y) => (float[N,4] a, float[N,4] b) { [n0] p = Neg(x) [n1] q = Softsign(p) "
    "[n2] r = Add(p, y) [n3] a = Sub(q, r) [n4] b = Softsign(x) }"
)


@pytest.mark.parametrize("after", range(5))
def test_a_device_that_goes_in_the_middle_of_a_run(after: int) -> None:
    with offered(Acme=lambda: Unplugged(lambda log: len(log) >= after)):
        session, feeds = session_on(MIXED), feeds_of(3)
        for result, want in zip(session.run(None, feeds), expected(MIXED, feeds), strict=True):
            np.testing.assert_allclose(result, want, rtol=1e-6)
        assert session.get_providers() == [CPU]
        session.close()


@pytest.mark.parametrize("way", ["raises", "too few", "wrong shape", "shapes raise"])
def test_a_broken_region_is_a_typed_error_that_names_it(way: str) -> None:
    with offered(Acme=lambda: Compiling(HOST, {way, "shapes"})):
        session = session_on()
        for _ in range(2):
            with pytest.raises(Fail, match="group0"):
                session.run(None, feeds_of(3))


def test_a_claim_without_a_compiler_is_refused() -> None:
    class Cannot(OwnProvider):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            return [Claim(list(graph.nodes), "all")]

    with offered(Acme=Cannot), pytest.raises(Fail, match=r"Acme claims the fused region 'all' but .* no compile"):
        session_on()


def test_cancelling_reaches_a_region() -> None:
    options = onnxplug.RunOptions()
    seen: list[bool] = []

    class Long(Compiled):
        def __call__(self, context: Any, *inputs: Any) -> Any:
            seen.append(context.cancelled())
            options.terminate = True
            seen.append(context.cancelled())
            raise Fail("stopped")

    class Slow(Compiling):
        def compile(self, regions: Any) -> Any:
            return [Long(r, HOST, set()) for r in regions]

    with offered(Acme=Slow):
        session = session_on()
        with pytest.raises(Fail, match="stopped"):
            session.run(None, feeds_of(2), options)
    assert seen == [False, True]
