"""Providers that fail at every turn, and the hooks at the edges of a run."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import CPU, OwnProvider, offered
from core_sessions import REFERENCE, X, broken, only_z, options_with, session

import onnxplug
from onnxplug.contract import (
    Claim,
    Device,
    ExecutionProvider,
    KernelDef,
    KernelRegistry,
)
from onnxplug.contract.errors import (
    EPFail,
    Fail,
    NoSuchFile,
    RuntimeException,
)
from onnxplug.plan import failures
from onnxplug_ep_reference.memory import live_buffers

# ---- providers that fail


ERRORS = {"ZeroDivisionError": ZeroDivisionError, "KeyError": lambda: KeyError("lost"), "RuntimeError": lambda: RuntimeError("no"),
          "MemoryError": MemoryError, "SystemExit": lambda: SystemExit(3), "Fail": lambda: Fail("as it is")}  # fmt: skip
CREATING = ["create", "get_capability", "get_kernel_registry", "create_allocators", "get_data_transfer"]
RUNNING = ["view", "on_run_start", "on_run_end", "sync", "create_stream"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("hook", CREATING)
def test_a_provider_that_fails_while_the_session_is_made(hook: str, error: str) -> None:
    """A typed error that names provider and hook; the other providers are closed, and nothing is left."""
    good = lambda: OwnProvider(Device("good"), wanted=())  # noqa: E731
    with offered(GoodExecutionProvider=good, BadExecutionProvider=broken(hook, ERRORS[error])) as made:
        for order in (
            ["GoodExecutionProvider", "BadExecutionProvider", CPU],
            ["BadExecutionProvider", "GoodExecutionProvider"],
        ):
            with pytest.raises((Fail, RuntimeException)) as raised:
                session(providers=order, enable_fallback=1)
            if error != "Fail":
                assert (
                    f"BadExecutionProvider: {hook} raised" in str(raised.value) and raised.value.__cause__ is not None
                )
            assert isinstance(raised.value, RuntimeException) == (error == "MemoryError")
        assert all(p.closed and not p.allocator.live for p in made["GoodExecutionProvider"])
        assert all(not p.allocator.live for p in made["BadExecutionProvider"])
        assert session(providers=["GoodExecutionProvider"]).run(["y"], {"x": X})[0].tolist() == [[1, 2]]


@pytest.mark.parametrize("error", [e for e in ERRORS if e != "SystemExit"])
@pytest.mark.parametrize("hook", RUNNING)
def test_a_provider_that_fails_while_it_runs(hook: str, error: str) -> None:
    with offered(BadExecutionProvider=broken(hook, ERRORS[error])) as made:
        try:
            bad = session(providers=["BadExecutionProvider"])
        except (Fail, RuntimeException) as failure:
            assert error == "Fail" or f"BadExecutionProvider: {hook} raised" in str(failure)
        else:
            for _ in range(2):
                with pytest.raises((Fail, RuntimeException)) as raised:
                    bad.run(None, {"x": X})
                if error != "Fail":
                    assert "BadExecutionProvider" in str(raised.value) and f"{hook} raised" in str(raised.value)
            bad.close()
        (instance,) = made["BadExecutionProvider"]
        assert instance.closed and not instance.allocator.live


def test_a_provider_that_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    with offered(
        BadExecutionProvider=broken("close", ZeroDivisionError),
        GoodExecutionProvider=lambda: OwnProvider(Device("good")),
    ) as made:
        with pytest.raises(Fail, match="BadExecutionProvider: close raised ZeroDivisionError"):
            session(providers=["BadExecutionProvider", "GoodExecutionProvider"]).close()
        assert made["GoodExecutionProvider"][0].closed
        left = session(providers=["BadExecutionProvider", "GoodExecutionProvider"])
        left.run(None, {"x": X})
        del left
        gc.collect()
        assert made["GoodExecutionProvider"][1].closed and "BadExecutionProvider: close raised" in caplog.text
        with pytest.raises(NoSuchFile):  # the reason is not covered up
            session("nowhere.onnx", ["BadExecutionProvider", "GoodExecutionProvider"])
        assert made["GoodExecutionProvider"][2].closed


@pytest.mark.parametrize("error", ERRORS)
def test_a_region_that_does_not_compile_goes_to_the_next_provider(error: str, caplog: pytest.LogCaptureFixture) -> None:
    with offered(BadExecutionProvider=broken("compile", ERRORS[error], fuses=True)) as made:
        fallen = session(providers=["BadExecutionProvider"])
        assert set(fallen.placement().values()) == {CPU} and "could not compile" in caplog.text
        assert fallen.run(["y"], {"x": X})[0].tolist() == [[1, 2]]
        assert {n["reasons"]["BadExecutionProvider"] for n in fallen.explain().nodes} != {""}
        with pytest.raises((Fail, RuntimeException), match=r"BadExecutionProvider|as it is"):
            session(providers=["BadExecutionProvider"], options=options_with(session__disable_compile_fallback="1"))
        assert not made["BadExecutionProvider"][1].allocator.live and made["BadExecutionProvider"][1].closed


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda graph: [3], "must give Claims, Declines and Inlines"),
        (lambda graph: [Claim([object()])], "named a node that is not in graph"),
        (lambda graph: [Claim(list(graph.nodes), fused="all")], "no compile"),
        (lambda graph: 3, "get_capability"),
    ],
)
def test_nonsense_from_get_capability(answer: Any, text: str) -> None:
    class Odd(OwnProvider):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            return answer(graph)

    with offered(OddExecutionProvider=Odd), pytest.raises(Fail, match=text) as raised:
        session(providers=["OddExecutionProvider"])
    assert "OddExecutionProvider" in str(raised.value)


@pytest.mark.parametrize("answer", [3, "x", [3]])
@pytest.mark.parametrize("hook", ["get_kernel_registry", "create_allocators", "get_data_transfer"])
def test_nonsense_from_other_hooks(hook: str, answer: Any) -> None:
    odd = type("Odd", (OwnProvider,), {hook: lambda self: answer})
    with offered(OddExecutionProvider=odd), pytest.raises(Fail, match="OddExecutionProvider"):
        session(providers=["OddExecutionProvider"]).run(None, {"x": X})


def kernel_that(action: Callable[..., Any]) -> Callable[[], ExecutionProvider]:
    class Own(ExecutionProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry([KernelDef("", "Abs", 13, lambda node: action)])

    return Own


def raises(error: BaseException) -> Callable[..., Any]:
    def kernel(*_: Any) -> Any:
        raise error

    return kernel


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("x"), OSError("x"), AssertionError("x"), MemoryError("x"), RuntimeError("x")]
)
def test_a_kernel_that_raises(error: BaseException) -> None:
    with offered(OwnExecutionProvider=kernel_that(raises(error))):
        made = session(providers=["OwnExecutionProvider"])
        with pytest.raises(
            (Fail, RuntimeException),
            match=r"Non-zero status code returned while running Abs node. Name:'Abs_0' Status Message: .*OwnExecutionProvider",
        ) as raised:
            made.run(None, {"x": X})
        assert raised.value.__cause__ is error
        assert made.run(["z"], {"x": X}, only_z())[0].tolist() == [[0, 0]], "other outputs are still to be had"


def test_a_kernel_that_cannot_be_made() -> None:
    class Own(ExecutionProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry([KernelDef("", "Abs", 13, raises(ZeroDivisionError()))])

    with (
        offered(OwnExecutionProvider=Own),
        pytest.raises(Fail, match="OwnExecutionProvider could not create the kernel of node 'Abs_0'"),
    ):
        session(providers=["OwnExecutionProvider"])


def test_a_provider_that_gives_up_at_run_time(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """EPFail: the session goes on without it, and the request is answered."""
    calls = []

    def gives_up(x: Any) -> Any:
        calls.append(x)
        raise EPFail("the device is lost")

    with offered(OwnExecutionProvider=kernel_that(gives_up)):
        made = session(providers=["OwnExecutionProvider"])
        made.enable_fallback()
        assert made.run(["y"], {"x": X})[0].tolist() == [[1, 2]]
        assert made.get_providers() == [CPU] and len(calls) == 1
        assert "OwnExecutionProvider failed at run time" in caplog.text
        first, second = capfd.readouterr().out.splitlines()
        assert re.fullmatch(rf"EP Error: .*the device is lost.* using \['OwnExecutionProvider', '{CPU}'\]", first)
        assert second == f"Falling back to ['{CPU}'] and retrying."
        made.set_providers(["OwnExecutionProvider"])
        made.disable_fallback()
        with pytest.raises(EPFail, match="the device is lost"):
            made.run(None, {"x": X})


def test_the_end_of_an_arena() -> None:
    limited = [(REFERENCE, {"mem_limit": 1 << 20, "arena_extend_strategy": "kSameAsRequested"})]
    before = live_buffers()
    made = session(providers=limited)
    small, large = np.ones((100, 2), np.float32), np.ones((200_000, 2), np.float32)
    for _ in range(2):
        assert made.run(["y"], {"x": small})[0].sum() == 200
        with pytest.raises(RuntimeException, match=r"sim:0.* smaller than requested bytes of|wanted, .* in use"):
            made.run(None, {"x": large})
    made.close()
    assert live_buffers() == before


def test_more_than_the_host_has() -> None:
    made = session(model("g (int64[2] s) => (float y) { y = ConstantOfShape(s) }"))
    with pytest.raises((RuntimeException, Fail), match=r"[Uu]nable to allocate|Failed to allocate|too large"):
        made.run(None, {"s": np.array([1 << 30, 1 << 20])})
    fixed = session(model(f"g (float[{1 << 20}, 1] x, float[1, {1 << 22}] w) => (float y) {{ y = Add(x, w) }}"))
    feeds = {"x": np.zeros((1 << 20, 1), np.float32), "w": np.zeros((1, 1 << 22), np.float32)}
    with pytest.raises(RuntimeException, match=r"[Uu]nable to allocate"):
        fixed.run(None, feeds)


# ---- hooks at the edges of a run


class Edges(OwnProvider):
    concurrent_run = False

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []
        self.inside = 0

    def on_run_start(self, options: Any) -> None:
        self.inside += 1
        assert self.inside == 1, "two runs at once"
        self.told.append("start")

    def on_run_end(self, options: Any, error: Any) -> None:
        self.inside -= 1
        self.told.append(error)

    def sync(self) -> None:
        self.told.append("sync")


def test_hooks_at_the_edges_of_a_run() -> None:
    with offered(OwnExecutionProvider=Edges) as providers:
        made = session(providers=["OwnExecutionProvider"])
        (edges,) = providers["OwnExecutionProvider"]
        made.run(None, {"x": X})
        assert edges.told[0] == "start" and edges.told[-1] is None and "sync" in edges.told
        edges.told.clear()
        options = onnxplug.RunOptions()
        options.terminate = True
        with pytest.raises(Fail):
            made.run(None, {"x": X}, options)
        assert edges.told[0] == "start" and isinstance(edges.told[-1], Fail)
        threads = [threading.Thread(target=lambda: [made.run(None, {"x": X}) for _ in range(20)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert edges.inside == 0 and edges.told.count("start") == 61


def test_a_run_that_fails_at_its_edge_leaves_the_session_usable() -> None:
    failing = {"on": True}

    class Edge(Edges):
        def on_run_end(self, options: Any, error: Any) -> None:
            super().on_run_end(options, error)
            if failing["on"]:
                raise ZeroDivisionError

    with offered(OwnExecutionProvider=Edge):
        made = session(providers=["OwnExecutionProvider"])
        with pytest.raises(Fail, match="OwnExecutionProvider: on_run_end raised ZeroDivisionError"):
            made.run(None, {"x": X})
        options = onnxplug.RunOptions()
        options.terminate = True
        with pytest.raises(Fail, match="terminate flag"):  # the first failure is the one that is told
            made.run(None, {"x": X}, options)
        failing["on"] = False
        assert made.run(["y"], {"x": X})[0].tolist() == [[1, 2]]


def test_dynamic_options() -> None:
    class Dynamic(OwnProvider):
        def set_dynamic_options(self, options: Any) -> None:
            if "bad" in options:
                raise RuntimeError("bad may not change")
            self.given = dict(options)

    with offered(OwnExecutionProvider=Dynamic) as providers:
        made = session(providers=["OwnExecutionProvider"])
        made.set_ep_dynamic_options({"power": 3})
        assert providers["OwnExecutionProvider"][0].given == {"power": "3"}
        with pytest.raises(RuntimeError, match="bad may not change"):
            made.set_ep_dynamic_options({"bad": "1"})
        with pytest.raises(RuntimeError):
            made.set_ep_dynamic_options({})


@pytest.mark.parametrize("status", [700, {"a": 1}, "OTHER"])
def test_a_status_of_another_library_does_not_speak_for_onnxruntime(
    monkeypatch: pytest.MonkeyPatch, status: Any
) -> None:
    class ForeignError(RuntimeError):
        pass

    cause = ForeignError("real cause")
    cause.status = status
    monkeypatch.setattr(failures, "describe", lambda unit: ("n", "Add", "X"))
    told = failures.step_failure(object(), cause)
    assert type(told) is Fail and "ForeignError: real cause" in str(told)
