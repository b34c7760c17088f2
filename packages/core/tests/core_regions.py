"""A provider that compiles regions in every form of the contract, or misbehaves on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from core_graphs import model, row
from core_providers import CPU, RULES, OwnProvider, read, upload

import onnxplug
from onnxplug.contract import HOST, Claim, CompiledRegion, Device, EPFail, Region
from onnxplug.contract.grouping import convex_groups

ACME = Device("acme")


def feeds_of(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": row(n, seed), "y": row(n, seed + 1)}


class Compiled(CompiledRegion):
    """A region run by the rules of ``core_providers``, one node after the other. ``traits`` say which optional parts of
    the contract it has, or how it misbehaves."""

    def __init__(self, region: Region, device: Device, traits: set[str]) -> None:
        self.region, self.device, self.traits = region, device, traits
        self.contexts: list[Any] = []
        self.calls: list[str] = []

    def _compute(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        known = {id(v): read(array) for v, array in zip(self.region.inputs, inputs, strict=True)}
        for node in self.region.graph.nodes:
            operands = [known.get(id(v), v.constant) for v in node.inputs]
            known[id(node.outputs[0])] = np.asarray(RULES[node.op_type](*operands))
        return [known[id(v)] for v in self.region.outputs]

    def _scribble(self, context: Any, shapes: Sequence[Any]) -> None:
        self.contexts.append(context)
        if "workspace" in self.traits:
            scratch = read(context.workspace)
            assert scratch.shape == (self.workspace(shapes),) and scratch.dtype == np.uint8
            scratch.fill(0xAA)

    def __call__(self, context: Any, *inputs: Any) -> Sequence[Any]:
        self.calls.append("call")
        if "fails" in self.traits:
            raise EPFail("the device is gone")
        if "raises" in self.traits:
            raise KeyError("no such thing")
        self._scribble(context, [tuple(x.shape) for x in inputs])
        results = self._compute(inputs)
        if "too few" in self.traits:
            return results[:-1]
        if "wrong shape" in self.traits:
            return [upload(r[:1], self.device) if self.device != HOST else r[:1] for r in results]
        if self.device == HOST:
            return results
        return [upload(r, self.device) for r in results]

    def output_shapes(self, inputs: Any) -> Any:
        if "shapes raise" in self.traits:
            raise KeyError("no such shape")
        if "shapes fail" in self.traits:
            raise EPFail("the device is gone")
        if "shapes" not in self.traits or None in inputs:
            return None
        found = [array.shape for array in self._compute([np.zeros(s, np.float32) for s in inputs])]
        return [None, *found[1:]] if "one unknown" in self.traits else found

    def run_into(self, context: Any, inputs: Any, outputs: Any) -> bool:
        self.calls.append("run_into")
        if "into" not in self.traits:
            return False
        self._scribble(context, [tuple(x.shape) for x in inputs])
        results = [r.copy() for r in self._compute(inputs)]
        for output in outputs:
            read(output).fill(np.nan)
        for output, result in zip(outputs, results, strict=True):
            read(output)[...] = result
        return True

    def function(self) -> Any:
        return self._direct if "function" in self.traits else None

    def _direct(self, workspace: Any, *operands: Any) -> bool:
        self.calls.append("function")
        count = len(self.region.inputs)
        if operands[0].shape[0] == 2:
            return False
        for output, result in zip(operands[count:], self._compute(operands[:count]), strict=True):
            read(output)[...] = result
        return True

    def workspace(self, inputs: Any) -> int:
        if "workspace" not in self.traits:
            return 0
        assert None not in inputs
        return 64 + sum(int(np.prod(shape)) for shape in inputs)


class Compiling(OwnProvider):
    """Claims maximal groups of the nodes it has rules for, as regions."""

    def __init__(self, device: Device = HOST, traits: set[str] | None = None, wanted: set[str] | None = None) -> None:
        super().__init__(device, wanted)
        self.traits = traits or set()
        self.regions: list[Region] = []
        self.units: list[Compiled] = []

    def get_capability(self, graph: Any, kernels: Any) -> Any:
        def takes(node: Any) -> bool:
            return node.op_type in RULES and node.domain == "" and (self.wanted is None or node.name in self.wanted)

        for number, group in enumerate(convex_groups(graph, takes)):
            yield Claim(group, f"group{number}")

    def get_kernel_registry(self) -> Any:
        return None

    def compile(self, regions: Any) -> Any:
        self.regions = list(regions)
        if "compile raises" in self.traits:
            raise ValueError("this chip cannot")
        if "compile gives nothing" in self.traits:
            return None
        if "compile gives something else" in self.traits:
            return [object() for _ in regions]
        self.units = [Compiled(r, self.device, self.traits) for r in regions]
        return self.units[1:] if "compile gives too few" in self.traits else self.units


CHAIN = model(
    "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { c = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>() "
    "[n0] p = Add(x, c) [n1] q = Mul(p, y) [n2] a = Relu(q) }"
)


def session_on(source: bytes = CHAIN, **kwargs: Any) -> Any:
    return onnxplug.InferenceSession(source, **{"providers": ["Acme", CPU], **kwargs})
