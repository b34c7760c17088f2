"""Providers that give back what they must not: the error names them, and nobody reads what they gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import CPU, OwnAllocator, OwnProvider, offered

import onnxplug
from onnxplug.contract import Buffer, Claim, CompiledRegion, Device, KernelDef, KernelRegistry
from onnxplug.contract.errors import Fail, InvalidArgument, Misfit
from onnxplug.run.calls import Wanted, fitting

SOURCES = [
    model(f"g (float[{n}] x) => (float[{n}] y) {{ [n0] a = Add (x, x) [n1] b = Mul (a, x) [n2] y = Tanh (b) }}")
    for n in ("N", "4")
]  # the shapes that a plan knows from the feed, and those that the model fixes
X = np.arange(4, dtype=np.float32)
DEVICE = Device("nasty")


def lost(*_: Any, **__: Any) -> Any:
    raise KeyError("lost")


def run(source: bytes, provider: Callable[[], OwnProvider], kind: str = "cpu") -> np.ndarray:
    with offered(kind, Nasty=provider):
        made = onnxplug.InferenceSession(source, providers=["Nasty", CPU], enable_fallback=0)
        try:
            return made.run(None, {"x": X})[0]
        finally:
            made.close()


RESULTS: dict[str, Callable[[np.ndarray], Any]] = {
    "float64": lambda a: a.astype(np.float64), "bytes swapped": lambda a: a.astype(">f4"), "integers": lambda a: a.view(np.int32),
    "short": lambda a: a[:2].copy(), "a scalar": lambda a: np.float32(1), "a rank more": lambda a: a[None], "a list": list,
    "text": lambda a: "x", "nothing": lambda a: None,
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("result", RESULTS)
def test_a_kernel_that_returns_what_the_output_is_not(result: str, source: bytes) -> None:
    """Generated code of the CPU provider reads behind it, and does not look."""

    class Nasty(OwnProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry([KernelDef("", "Add", 14, lambda node: lambda a, b: RESULTS[result](a + b))])

        def get_capability(self, graph: Any, kernels: Any) -> Any:
            return [Claim([node]) for node in graph.nodes if node.op_type == "Add"]

    with pytest.raises(
        Fail, match=r"while running Add node\. Name:'n0' .*it gave .* for an output .*\(provider Nasty\)"
    ):
        run(source, Nasty)


def test_a_result_of_another_shape_is_told_in_words() -> None:
    """A library that makes one dimension of none is found by the two shapes; ``<f4`` names no type of ONNX."""
    with pytest.raises(Misfit, match=r"it gave float32\[1\] for an output that is float32\[\]"):
        fitting(np.zeros(1, np.float32), Wanted(np.dtype(np.float32), ()))


class Region(CompiledRegion):
    def __call__(self, context: Any, *inputs: Any) -> Any:
        return [2 * inputs[0] * inputs[0]]


def compiling(methods: Mapping[str, Any]) -> type[OwnProvider]:
    """A provider that compiles the first two nodes into a region with these methods."""
    kind = type("NastyRegion", (Region,), dict(methods))

    class Nasty(OwnProvider):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            mine = [node for node in graph.nodes if node.op_type != "Tanh"]
            return [Claim(mine, fused="two")] if mine else []

        def compile(self, regions: Any) -> Any:
            return [kind() for _ in regions]

    return Nasty


def giving(result: Callable[[np.ndarray], Any]) -> Callable[..., Any]:
    return lambda self, context, *inputs: result(2 * inputs[0] * inputs[0])


def shapes(given: Any) -> Callable[..., Any]:
    return lambda self, inputs: given


REGIONS: dict[str, dict[str, Any]] = {
    "no sequence": {"__call__": giving(lambda a: None)}, "too many": {"__call__": giving(lambda a: [a, a])},
    "float64": {"__call__": giving(lambda a: [a.astype(np.float64)])}, "a list": {"__call__": giving(lambda a: [a.tolist()])},
    "nothing": {"__call__": giving(lambda a: [None])},
    "float64 of the shape it said": {
        "__call__": giving(lambda a: [a.astype(np.float64)]), "output_shapes": lambda self, inputs: [inputs[0]],
    },
    "another shape than it said": {"output_shapes": shapes([(2,)])}, "no such shape": {"output_shapes": shapes([(-4,)])},
    "a shape of letters": {"output_shapes": shapes(["ab"])}, "too few shapes": {"output_shapes": shapes([])},
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("way", REGIONS)
def test_a_region_that_returns_what_its_outputs_are_not(way: str, source: bytes) -> None:
    with pytest.raises((Fail, InvalidArgument), match=r"Name:'two_\w+' .*\(provider Nasty\)"):
        run(source, compiling(REGIONS[way]))


def test_a_region_that_blames_what_is_no_node_of_it() -> None:
    def failing(self: Any, context: Any, *inputs: Any) -> Any:
        error = RuntimeError("lost")
        error.node = "n0"  # type: ignore[attr-defined]  # the name of one, where the contract has the node
        raise error

    with pytest.raises(Fail, match=r"Name:'two_\w+' Status Message: RuntimeError: lost \(provider Nasty\)"):
        run(SOURCES[0], compiling({"__call__": failing}))


@pytest.mark.parametrize("facts", [lost, lambda self: None])
def test_a_region_that_cannot_tell_its_facts_is_explained_all_the_same(facts: Callable[..., Any]) -> None:
    with offered(Nasty=compiling({"facts": facts})):
        made = onnxplug.InferenceSession(SOURCES[0], providers=["Nasty", CPU], enable_fallback=0)
        assert "Error" in made.explain().regions[0]["facts"]["facts"]


ALLOCATIONS: dict[str, Callable[..., Any]] = {
    "raises": lost, "nothing": lambda self, nbytes: None, "less": lambda self, nbytes: Buffer(DEVICE, nbytes - 1, [None]),
}  # fmt: skip


@pytest.mark.parametrize("way", ALLOCATIONS)
def test_an_allocator_that_gives_no_memory(way: str) -> None:
    def provider() -> OwnProvider:
        made = OwnProvider(DEVICE)
        made.allocator = type("Nasty", (OwnAllocator,), {"allocate": ALLOCATIONS[way]})(DEVICE)
        return made

    with pytest.raises(Fail, match="Nasty: allocate of its allocator"):
        run(SOURCES[0], provider, "nasty")


def test_an_allocator_that_takes_nothing_back(caplog: pytest.LogCaptureFixture) -> None:
    def provider() -> OwnProvider:
        made = OwnProvider(DEVICE)
        made.allocator = type("Nasty", (OwnAllocator,), {"free": lost})(DEVICE)
        return made

    with pytest.raises(Fail, match="Nasty: free of its allocator raised KeyError"):
        run(SOURCES[0], provider, "nasty")
    assert "free of its allocator" in caplog.text


def test_memory_that_nothing_copies_to() -> None:
    unreachable = type("Unreachable", (OwnProvider,), {"get_data_transfer": lambda self: None})
    with pytest.raises(Fail, match=r"Nasty: nothing copies to and from nasty:0.*get_data_transfer"):
        run(SOURCES[0], lambda: unreachable(DEVICE), "nasty")
