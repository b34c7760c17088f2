"""Choices between algorithms of one layer: by estimated time, or measured (``ep.cpu.tune``), within the memory that filters may
take (``ep.cpu.winograd_memory``). The same region and shapes always get the same algorithm."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract import NodeView, Region, ValueView
from onnxplug.contract.logs import Log
from onnxplug_ep_cpu.codegen.cache import object_cache
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.packer import aligned_zeros
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.lower.context import Lowering
    from onnxplug_ep_cpu.codegen.lower.pending import Pending

log = Log("onnxplug.cpu")

GROWTH = 8
"""By how many times their size transformed filters grow at most: F(4 x 4, 3 x 3) with strides of 2 makes 81 numbers of 9."""
ROUNDS, PATIENCE = 7, 30_000_000
"""Runs of a measured layer, and the nanoseconds after which two must do."""

_tuned: dict[str, Any] = {}
_tuning = threading.Lock()


def growing(regions: Iterable[Region], limit: int) -> frozenset[str]:
    """Names of the filters that may be kept transformed within ``limit`` bytes more than they have, small ones first: they
    belong to the large images, where transforming pays most."""
    filters = (v for region in regions for n in region.graph.nodes if (v := _filters(n)) is not None)
    arrays = {v.name: array for v in filters if (array := v.constant) is not None}
    sizes = {name: array.size * (1 if array.itemsize == 1 else 4) for name, array in arrays.items()}
    allowed, taken = [], 0
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        taken += GROWTH * sizes[name]
        if taken > limit:
            break
        allowed.append(name)
    return frozenset(allowed)


def _filters(node: NodeView) -> ValueView | None:
    """What a convolution's filters are made of: the floats, or the integers that they are dequantized from."""
    position = {"Conv": 1, "FusedConv": 1, "ConvInteger": 1, "QLinearConv": 3}.get(node.op_type)
    value = None if position is None else node.inputs[position]
    maker = None if value is None else value.producer
    return maker.inputs[0] if maker is not None and maker.op_type == "DequantizeLinear" else value


class Choices:
    """What was chosen for the layers of a region, for ``explain``."""

    def __init__(self, allowed: frozenset[str] | None) -> None:
        self._allowed = allowed
        self.algorithms: dict[str, str] = {}
        """Node -> the algorithm of the latest bind, where there was a choice."""
        self._surplus: dict[str, int] = {}

    def may_grow(self, filters: str) -> bool:
        """Whether filters may take more memory than they have."""
        return self._allowed is None or filters in self._allowed

    def note(self, node: str, algorithm: str, filters: str, surplus: int) -> None:
        """A layer got this algorithm, which keeps ``surplus`` bytes more of its filters."""
        self.algorithms[node] = algorithm
        self._surplus[filters] = max(surplus, self._surplus.get(filters, 0))

    @property
    def surplus(self) -> int:
        """Bytes that transformed filters take beyond what the filters themselves have."""
        return sum(self._surplus.values())


def fastest(
    b: Lowering,
    layer: tuple[Any, ...],
    given: Ints,
    times: Mapping[Any, float],
    lower: Callable[[Lowering, Tensor, Any], Pending],
    element: str = "float32",
) -> Any:
    """The option of least estimated time; with ``ep.cpu.tune`` of least measured time. ``lower`` makes the layer by an option
    from a source of shape ``given`` and type ``element``, channels last; ``layer`` says everything that its time depends on."""
    options = sorted(times, key=lambda option: times[option])
    if len(options) == 1 or not b.prepared.settings.tune:
        return options[0]
    named = " ".join(map(str, layer))
    key = f"t{compiler(b.target).key(f'{named} {sorted(map(repr, options))} {b.threads}')}"
    with _tuning:
        found = _tuned.get(key) or _remembered(key)
        if found is None:
            took = {repr(option): _measured(b, given, option, lower, element) for option in options}
            found = {"layer": named, "nanoseconds": took}
            if (cache := object_cache()) is not None:
                import json

                cache.put(key, json.dumps(found).encode())
            log.info("measured %s: %s", named, took)
        _tuned[key] = found
    measured = found["nanoseconds"]
    return min(options, key=lambda option: measured[repr(option)])


def _remembered(key: str) -> Any:
    import json

    cache = object_cache()
    blob = None if cache is None else cache.get(key)
    return None if blob is None else json.loads(blob)


def _measured(
    b: Lowering, given: Ints, option: Any, lower: Callable[[Lowering, Tensor, Any], Pending], element: str
) -> int:
    """Nanoseconds of a layer alone, on zeros: its time does not depend on the numbers."""
    aside = b.aside()
    source = aside.scratch(given, channels_last(len(given)), element)
    aside.write(lower(aside, source, option))
    aside.packer.finish()
    image = aside.program.finish(compiler(b.target), 0, 0, b.threads)
    workspace = aligned_zeros((image.workspace,), np.uint8)
    bases, took, spent = image.bases(id(workspace)), [], 0
    for number in range(ROUNDS + 1):
        began = time.perf_counter_ns()
        for record in image.records:
            b.packer.pool().run(record, bases, image.shared)
        took.append(time.perf_counter_ns() - began)
        spent += took[-1]
        if number >= 2 and spent > PATIENCE:
            break
    return min(took[1:])
