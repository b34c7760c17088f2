"""One provider of one session: its hooks, its options, and mistakes in its class."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from onnxplug.contract import (
    CONTRACT_VERSION,
    EPFail,
    ExecutionProvider,
    ProviderSpec,
    SessionContext,
    hookimpl,
    option,
    parse_options,
)
from onnxplug.contract.errors import Fail, RuntimeException
from onnxplug.contract.hooks import ProviderHooks
from onnxplug.plugins import InvalidProvider, ProviderInstance, create_instance, registry
from onnxplug.plugins.environment import provider_for_device
from onnxplug.plugins.manager import hook_names

CONTEXT = SessionContext(threads=1, config={}, log=logging.getLogger("test"))


@dataclass(frozen=True)
class AcmeOptions:
    device_id: int = option(0, "index of the device")
    exact: bool = option(False, "slow and exact")


def instance_of(create: Callable[..., Any], given: dict[str, str] | None = None) -> ProviderInstance:
    spec = ProviderSpec(
        "AcmeExecutionProvider", CONTRACT_VERSION, lambda options, context: create(), options=AcmeOptions
    )
    return create_instance(spec, given or {}, CONTEXT)


class Acme(ExecutionProvider):
    def __init__(self) -> None:
        self.told: list[object] = []

    @property
    def heavy(self) -> int:
        raise AssertionError("properties are not read")

    def compile(self, regions: Any) -> Any:
        return [f"compiled {r}" for r in regions]

    def on_run_end(self, error: object) -> None:
        self.told.append(error)

    def get_capability(self, graph: Any, kernels: Any) -> Any:
        yield from graph


def test_plain_methods_are_hooks() -> None:
    instance = instance_of(Acme, {"exact": "True"})
    assert instance.options == AcmeOptions(exact=True) and instance.option_strings == {"device_id": "0", "exact": "1"}
    assert instance.concurrent_run and instance.provider.told == []
    assert instance.call("compile", regions=[1, 2]) == ["compiled 1", "compiled 2"]
    assert instance.hook.compile(regions=[3]) == ["compiled 3"]
    assert instance.call("get_capability", graph=[1], kernels=None) == [1], "generators are run to their end"
    assert instance.call("sync") is None, "not implemented"


def test_supports_means_beyond_the_default() -> None:
    instance = instance_of(Acme)
    assert {name for name in hook_names(ProviderHooks) if instance.supports(name)} == {
        "compile",
        "get_capability",
        "on_run_end",
    }
    assert instance.method("sync") is None and instance.method("get_kernel_registry") is not None


def test_bound_methods_take_all_arguments_in_order() -> None:
    instance = instance_of(Acme)
    assert instance.method("compile") == instance.provider.compile
    tell = instance.method("on_run_end")
    assert tell is not None
    tell("options", "error")
    assert instance.provider.told == ["error"]


def test_decorated_method_under_another_name() -> None:
    class Renamed(ExecutionProvider):
        @hookimpl(specname="sync")
        def wait_for_device(self) -> None:
            raise EPFail("lost")

    instance = instance_of(Renamed)
    assert instance.supports("sync") and instance.method("sync") is not None


def test_a_class_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    instance_of(Acme)
    monkeypatch.setattr("onnxplug.plugins.instance.provider_manager", None)
    instance = instance_of(Acme)
    assert instance.call("compile", regions=[1]) == ["compiled 1"] and instance.call("sync") is None
    assert instance.supports("on_run_end") and not instance.supports("get_kernel_registry")
    instance.call("on_run_end", options="options", error="error")
    assert instance.provider.told == ["error"]


def test_hooks_are_found_by_their_names_not_by_those_of_functions() -> None:
    class Terse(ExecutionProvider):
        sync = lambda self: "synced"  # noqa: E731

    assert [instance_of(Terse).call("sync") for _ in range(3)] == ["synced"] * 3


def test_hooks_of_an_object_are_its_own() -> None:
    def changed() -> Acme:
        provider = Acme()
        provider.sync = lambda: "synced"  # type: ignore[method-assign]
        return provider

    for create, synced in ((Acme, None), (changed, "synced"), (Acme, None), (changed, "synced")):
        instance = instance_of(create)
        assert instance.call("sync") == synced and instance.supports("sync") == (synced is not None)


def test_a_class_that_changed_is_looked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(ExecutionProvider):
        def sync(self) -> str:
            return "synced"

    assert instance_of(Plain).call("sync") == "synced"
    monkeypatch.setattr(Plain, "compile", lambda self, regions: len(regions), raising=False)
    assert instance_of(Plain).call("compile", regions=[1, 2]) == 2
    monkeypatch.setattr(Plain, "sync", 3)
    with pytest.raises(InvalidProvider, match="sync is a int"):
        instance_of(Plain)


class Misspelt(ExecutionProvider):
    def get_capabilities(self, graph: Any, kernels: Any) -> Any: ...


class MisspeltDecorated(ExecutionProvider):
    @hookimpl
    def on_session_run(self) -> None: ...


class WrongArgument(ExecutionProvider):
    def compile(self, region: Any) -> Any: ...  # type: ignore[override]


class Defaulted(ExecutionProvider):
    def on_run_start(self, options: Any = None) -> None: ...


class KeywordOnly(ExecutionProvider):
    def compile(self, *, regions: Any) -> Any: ...  # type: ignore[override]


class NotAMethod(ExecutionProvider):
    sync = 3


@pytest.mark.parametrize(
    ("provider", "hook", "text"),
    [
        (Misspelt, "get_capability", "get_capabilities is not a hook; did you mean get_capability?"),
        (MisspeltDecorated, "on_session_run", "on_session_run is not a hook"),
        (WrongArgument, "compile", "Argument(s) {'region'}"),
        (Defaulted, "on_run_start", "argument options must be positional without a default"),
        (KeywordOnly, "compile", "argument regions must be positional"),
        (NotAMethod, "sync", "sync is a int"),
    ],
)
def test_mistakes_are_load_errors(provider: type, hook: str, text: str) -> None:
    with pytest.raises(InvalidProvider) as raised:
        instance_of(provider)
    assert (raised.value.provider, raised.value.hook) == ("AcmeExecutionProvider", hook)
    assert f"AcmeExecutionProvider: {text}" in str(raised.value) or text in str(raised.value)
    assert isinstance(raised.value, Fail)


def test_helpers_with_like_names_are_left_alone() -> None:
    class Tidy(ExecutionProvider):
        create_stream = None  # not supported, said aloud

        def close(self) -> None: ...
        def closed(self) -> bool: ...
        def _get_capabilities(self) -> None: ...
        def compile_one(self) -> None: ...

    assert not instance_of(Tidy).supports("create_stream")


@pytest.mark.parametrize("made", [None, 3, ExecutionProvider])
def test_create_must_return_a_provider(made: object) -> None:
    with pytest.raises(InvalidProvider, match="create returned"):
        instance_of(lambda: made)


def test_a_provider_without_the_base_class() -> None:
    class Duck:
        def get_capability(self, graph: Any) -> Any:
            return [graph]

    instance = instance_of(Duck)
    assert instance.supports("get_capability") and instance.call("get_capability", graph=1, kernels=None) == [1]
    assert instance.method("compile") is None


def test_options_are_runtime_errors_that_name_the_provider() -> None:
    with pytest.raises(RuntimeError, match=r'AcmeExecutionProvider: Unknown provider option: "speed"\.'):
        instance_of(Acme, {"speed": "1"})
    with pytest.raises(RuntimeError, match='Failed to parse provider option "device_id"'):
        instance_of(Acme, {"device_id": "first"})


@pytest.mark.parametrize(("given", "refused"), [("0.5", False), ("0", False), ("-0.1", True), ("nan", True)])
def test_numbers_below_the_least_are_refused(given: str, refused: bool) -> None:
    @dataclass(frozen=True)
    class Shares:
        share: float = option(1.0, "of the memory", least=0)

    if not refused:
        assert parse_options(Shares, {"share": given}).share == float(given)
        return
    with pytest.raises(RuntimeError, match=f'Failed to parse provider option "share": {given} is less than 0'):
        parse_options(Shares, {"share": given})


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (ValueError("bad"), Fail, "AcmeExecutionProvider: {} raised ValueError: bad"),
        (SystemExit(3), Fail, "AcmeExecutionProvider: {} raised SystemExit: 3"),
        (MemoryError(), RuntimeException, "AcmeExecutionProvider: {} raised MemoryError"),
        (EPFail("lost"), EPFail, "lost"),
    ],
)
def test_what_a_provider_raises(raised: BaseException, expected: type[Exception], text: str) -> None:
    class Raising(Acme):
        def sync(self) -> None:
            raise raised

        def get_capability(self, graph: Any, kernels: Any) -> Any:
            yield 1
            raise raised

    def fail() -> None:
        raise raised

    instance = instance_of(Raising)
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: instance_of(fail),
        "sync": lambda: instance.call("sync"),
        "get_capability": lambda: instance.call("get_capability", graph=1, kernels=1),
    }
    for hook, call in calls.items():
        with pytest.raises(expected) as seen:
            call()
        assert seen.value.text == text.format(hook)  # type: ignore[attr-defined]
        assert seen.value is raised or seen.value.__cause__ is raised
        assert type(instance.failure(hook, raised)) is expected


def test_a_slip_of_the_providers_code_is_told_with_its_place() -> None:
    class Slipping(Acme):
        def sync(self) -> None:
            [].pop()

    with pytest.raises(
        Fail, match=r"sync raised IndexError: pop from empty list \(test_provider_instance\.py, line \d+\)"
    ):
        instance_of(Slipping).call("sync")


def test_interrupts_and_refusals_pass() -> None:
    class Strict(Acme):
        def sync(self) -> None:
            raise KeyboardInterrupt

        def set_dynamic_options(self, options: Any) -> None:
            raise RuntimeError('"mode" cannot change')

    instance = instance_of(Strict)
    with pytest.raises(KeyboardInterrupt):
        instance.call("sync")
    with pytest.raises(RuntimeError, match='"mode" cannot change'):
        instance.call("set_dynamic_options", options={"mode": "x"})


def test_provider_for_a_device_outside_a_session() -> None:
    spec = ProviderSpec(
        "AcmeExecutionProvider", CONTRACT_VERSION, lambda o, c: Acme(), device_kind="acme", options=AcmeOptions
    )
    registry.register_provider(spec)
    try:
        instance = provider_for_device("acme", 3)
        assert (instance.name, instance.option_strings["device_id"]) == ("AcmeExecutionProvider", "3")
    finally:
        registry.unregister_provider("AcmeExecutionProvider")
    with pytest.raises(LookupError, match="no usable provider drives a device of kind 'acme'"):
        provider_for_device("acme", 0)
