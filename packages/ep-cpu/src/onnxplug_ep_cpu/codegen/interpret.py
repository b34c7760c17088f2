"""A region run node by node with NumPy: what serves when its code cannot be generated for the shapes that came."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, KernelDef, NodeView, Region, RunContext, TensorSpec, Watch
from onnxplug_ep_cpu.device import cores
from onnxplug_ep_cpu.registry import registry
from onnxplug_ep_cpu.threads import blas_threads


class InterpretedRegion(CompiledRegion):
    """The nodes' own kernels in topological order. ``reason`` says why."""

    def __init__(self, region: Region, specs: Mapping[str, TensorSpec], reason: str) -> None:
        self.region, self.reason, self._specs = region, reason, specs
        self._shapes = [specs[v.name].shape if v.name in specs else None for v in region.outputs]
        self._steps: list[tuple[NodeView, Any, list[str | None], list[str | None]]] = []
        self._constants: dict[str, np.ndarray] = {}
        for name, spec in specs.items():
            if spec.constant is not None:
                self._constants[name] = spec.constant
        for node in region.graph.nodes:
            outputs = [None if v is None else v.name for v in node.outputs]
            if all(name is None or name in self._constants for name in outputs):
                continue
            reads = (*node.inputs, *node.captures)
            for value in reads:
                if value is not None and value.constant is not None:
                    self._constants[value.name] = value.constant
            self._steps.append((node, kernel_of(node), [None if v is None else v.name for v in reads], outputs))

    def output_shapes(self, inputs: Any) -> Any:
        return None if any(shape is None for shape in self._shapes) else self._shapes

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        watch = context.watch()
        if context.threads >= cores():
            return self._run(inputs, watch)
        with blas_threads().limited(context.threads):
            return self._run(inputs, watch)

    def _run(self, inputs: Sequence[Any], watch: Watch | None) -> Sequence[Any]:
        known: dict[str, Any] = dict(self._constants)
        known.update(zip((v.name for v in self.region.inputs), inputs, strict=True))
        for node, call, reads, makes in self._steps:
            start = 0 if watch is None else time.perf_counter_ns()
            operands = [None if name is None else known[name] for name in reads]
            try:
                with np.errstate(all="ignore"):
                    results = call(*operands)
            except Exception as error:
                error.node, error.operands = node, operands  # type: ignore[attr-defined]
                raise
            for name, result in zip(makes, results if isinstance(results, tuple) else (results,), strict=False):
                if name is not None:
                    known[name] = result
            if watch is not None:
                watch((node,), self._specs, start, time.perf_counter_ns())
        return [known[v.name] for v in self.region.outputs]


def kernel_of(node: NodeView) -> Any:
    """The node's NumPy kernel, to be called with its operands and what its bodies capture."""
    if (node.domain, node.op_type) == ("", "Scan"):  # claimed as distances (see ``lower.neighbours``)
        from onnxplug_kernels.ops.contrib_matmul import cdist

        return lambda matrix, vectors: (matrix, cdist(np, vectors, matrix))
    if (node.domain, node.op_type) == ("", "Loop"):
        from onnxplug_ep_cpu.codegen.lower.bags import by_numpy

        return by_numpy(node)
    found = registry().kernel_for(node)
    assert isinstance(found, KernelDef), found
    try:
        return found.create(node)
    except Exception as error:  # it is the node's, not the region's
        error.node = node  # type: ignore[attr-defined]
        raise
