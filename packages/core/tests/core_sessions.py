"""What tests of sessions share: a small model, sessions over providers by name, options from keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from core_graphs import model
from core_providers import CPU, OwnProvider

import onnxplug
from onnxplug.contract import (
    Claim,
    CompiledRegion,
    Device,
    ExecutionProvider,
)
from onnxplug.contract.hooks import ProviderHooks
from onnxplug.plugins.manager import hook_names

REFERENCE = "ReferenceExecutionProvider"
PLAIN = model("g (float[N, 2] x) => (float[N, 2] y, float[N, 2] z) { h = Neg(x) y = Abs(h) z = Add(h, x) }")
PROFILED = model("""g (float[2] x, bool b, int64 n) => (float[2] y, float[2] z) { h = Sin(x) i = Exp(h)
    y = If (b) <then_branch = t () => (a) { a = Neg(i) }, else_branch = e () => (a) { a = Abs(i) }>
    z = Loop (n, "", i) <body = l (int64 k, bool c, float[2] v) => (bool d, float[2] o) { d = Identity(c) o = Add(v, h) }> }""")
X = np.array([[1, -2]], np.float32)


def name_of(error: BaseException) -> str:
    return type(error).__name__


def session(source: Any = PLAIN, providers: Sequence[Any] = (CPU,), options: Any = None, **keywords: Any) -> Any:
    return onnxplug.InferenceSession(source, options, list(providers), **{"enable_fallback": 0, **keywords})


def options_with(**entries: Any) -> Any:
    """Session options: attributes by name, config entries by their key with __ for the dot."""
    options = onnxplug.SessionOptions()
    for key, value in entries.items():
        if "__" in key:
            options.add_session_config_entry(key.replace("__", "."), value)
        else:
            setattr(options, key, value)
    return options


def only_z() -> Any:
    options = onnxplug.RunOptions()
    options.only_execute_path_to_fetches = True
    return options


def broken(hook: str, error: Callable[[], BaseException], fuses: bool = False) -> Callable[[], ExecutionProvider]:
    """A maker of providers on their own device that are fine but for one hook."""

    class Fused(CompiledRegion):
        def __call__(self, context: Any, *inputs: Any) -> Any:
            raise AssertionError("never run")

    class Provider(OwnProvider):
        def __init__(self) -> None:
            super().__init__(Device("own"))
            if hook == "create":
                raise error()

        def get_capability(self, graph: Any, kernels: Any) -> Any:
            if fuses and graph.nodes:
                return [Claim(list(graph.nodes), fused="all")]
            return super().get_capability(graph, kernels)

        def compile(self, regions: Any) -> Any:
            return [Fused() for _ in regions]

    def fails(arguments: Sequence[str]) -> Any:
        scope: dict[str, Any] = {"error": error}
        exec(f"def {hook}(self, {', '.join(arguments)}):\n    raise error()", scope)
        return scope[hook]

    if hook in hook_names(ProviderHooks):
        parameters = inspect.signature(getattr(ProviderHooks, hook)).parameters
        setattr(Provider, hook, fails([p for p in parameters if p != "self"]))
    return Provider


def on_device(array: np.ndarray) -> Any:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "sim", 0)
