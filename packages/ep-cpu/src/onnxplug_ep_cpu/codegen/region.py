"""Compiled regions: prepared once per session (weights packed), bound once per signature.

What an earlier session bound is taken from disk (see ``shelf``); what lowers nodes is imported when one is to be lowered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.contract import CompiledRegion, Region, TensorSpec, prefer_host
from onnxplug_ep_cpu.codegen import awaited
from onnxplug_ep_cpu.codegen.bound import BoundRegion
from onnxplug_ep_cpu.codegen.image import Image
from onnxplug_ep_cpu.codegen.pool import Pool, pool
from onnxplug_ep_cpu.codegen.settings import Settings
from onnxplug_ep_cpu.codegen.shelf import RegionShelf, Texts, shelf
from onnxplug_ep_cpu.codegen.target import Target

if TYPE_CHECKING:
    from onnxplug.contract.logs import Logger
    from onnxplug_ep_cpu.codegen.families import Images
    from onnxplug_ep_cpu.codegen.lower.context import Lowering
    from onnxplug_ep_cpu.codegen.prepared import Prepared
    from onnxplug_ep_cpu.codegen.program import Form
    from onnxplug_ep_cpu.codegen.undecided import Open

_CACHES = {("com.microsoft", "GroupQueryAttention"): {1: 3, 2: 4}}
"""Operators that add to a cache: output -> input that has what it adds to."""

FAULT = "fault of the generator"
"""How the reason begins why NumPy runs a region, where it is none of the model's."""
_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


def updated(region: Region) -> dict[int, tuple[int, ...]]:
    """Outputs that are caches with rows added -> the inputs that are these caches, which nothing else in the region reads."""
    places = {v.name: i for i, v in enumerate(region.inputs)}
    made = {v.name: i for i, v in enumerate(region.outputs)}
    nodes = region.graph.nodes
    found: dict[int, tuple[int, ...]] = {}
    for node in nodes:
        for output, source in _CACHES.get((node.domain, node.op_type), {}).items():
            past = node.inputs[source] if source < len(node.inputs) else None
            present = node.outputs[output] if output < len(node.outputs) else None
            if past is None or present is None or past.name not in places or present.name not in made:
                continue
            if sum(v is not None and v.name == past.name for n in nodes for v in (*n.inputs, *n.captures)) == 1:
                found[made[present.name]] = (places[past.name],)
    return found


class NativeRegion(CompiledRegion):
    """A region whose shapes are not known yet: ``bind`` makes the program for a signature."""

    def __init__(
        self,
        region: Region,
        target: Target,
        threads: int,
        settings: Settings,
        log: Logger,
        growing: frozenset[str] | None = None,
    ) -> None:
        self._region, self._target, self._threads, self._settings = region, target, threads, settings
        self._log = log
        self._growing = growing
        self._ready: tuple[Prepared, Images] | None = None
        self._lock = threading.Lock()
        self._summing: NativeRegion | None = None
        parent = region.graph.parent
        hosted = {id(node) for node in prefer_host(parent)} if parent is not None else set()
        sizes = awaited.names(region.graph.nodes)
        self.shape_inputs = frozenset(
            i for i, v in enumerate(region.inputs) if id(v.producer) in hosted or v.name in sizes
        )
        self.inplace = updated(region)
        self._shelf: RegionShelf | None = shelf(region, target, threads, settings)

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        with self._lock:
            found = None if self._shelf is None or self._ready else self._shelf.get(specs)
            if found is None:
                return self._bind(specs)
            for value in (v for node in self._region.graph.nodes for v in node.inputs):
                if value is not None:
                    value.release()  # the program has its own
            return self._bound(specs, *found)

    def foresee(self) -> None:
        """Make the program that a run of an earlier process asked for first, where its weights are too many to be kept: they are laid out
        while they are read, as where the model leaves no shape open."""
        specs = None if self._shelf is None else self._shelf.expected()
        if specs is None:
            return
        from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported

        with self._lock, contextlib.suppress(Unsupported, *_FAULTS):  # ``bind`` reports them
            self._prepare()[1].image(specs, self._form)

    def _bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        """The region lowered for a signature, or run node by node where that fails."""
        from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
        from onnxplug_ep_cpu.codegen.undecided import Open
        from onnxplug_kernels.refusals import Refusal

        region = self._region
        try:
            prepared, images = self._prepare()
            if any(v.dtype == object for v in region.outputs):  # of shapes that their lowering finds
                form, lowering = self._lowered(specs, Open())
                made = {v.name: lowering.specs[v.name] for v in region.outputs}
                image, texts = form.image(specs), Texts(made, lowering.words, prepared.numbers)
            else:
                image, texts = images.image(specs, self._form), Texts(specs, {}, prepared.numbers)
            if self._shelf is not None:
                self._shelf.put(specs, image, texts, prepared.facts)
            return self._bound(specs, image, texts)
        except (Unsupported, Refusal) as reason:  # a kernel refuses in its own words when it runs
            self._log.warning("region %s runs node by node with NumPy: %s", region.name, reason)
            return self._by_node(specs, str(reason))
        except _FAULTS as fault:
            # The nodes' own kernels can still give the answer, or say what is wrong with the model.
            self._log.exception("region %s runs node by node with NumPy for a %s: please report it", region.name, FAULT)
            return self._by_node(specs, f"{FAULT}: {fault!r}")

    def _by_node(self, specs: Mapping[str, TensorSpec], reason: str) -> CompiledRegion:
        from onnxplug_ep_cpu.codegen.interpret import InterpretedRegion

        return InterpretedRegion(self._region, specs, reason)

    def _bound(self, specs: Mapping[str, TensorSpec], image: Image, texts: Texts) -> CompiledRegion:
        numbered = []
        if texts.numbers:
            from onnxplug_ep_cpu.codegen.words import numbering

            number = numbering(texts.numbers)
            numbered = [(i, number) for i, v in enumerate(self._region.inputs) if v.dtype == object]
        return BoundRegion(
            self._region, specs, texts.made, texts.lists, numbered, image, self._pool(),
            lambda: self._otherwise(specs),
        )  # fmt: skip

    def _otherwise(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        """What answers to data that the program does not: convolutions that sum directly, to results that are not finite; the nodes' own
        kernels, which say what is wrong, to the rest and where no convolution does otherwise."""
        if not self.facts()["winograd_surplus_bytes"]:
            return self._by_node(specs, "its data")
        with self._lock:
            if self._summing is None:
                self._log.warning(
                    "region %s runs once more where a convolution's results are not finite, with all of them summed directly; config "
                    "entry 'ep.cpu.winograd' 0 sums so from the start", self._region.name,
                )  # fmt: skip
                plain = dataclasses.replace(self._settings, winograd=False)
                self._summing = NativeRegion(self._region, self._target, self._threads, plain, self._log, self._growing)
        return self._summing.bind(specs)

    def facts(self) -> Mapping[str, Any]:
        if self._ready is None and self._shelf is not None and self._shelf.facts is not None:
            return self._shelf.facts
        return self._prepare()[0].facts()

    def _prepare(self) -> tuple[Prepared, Images]:
        """What lowering starts from, made when it is first needed."""
        if self._ready is None:
            from onnxplug_ep_cpu.codegen.families import Images
            from onnxplug_ep_cpu.codegen.prepared import Prepared

            self._ready = Prepared(self._region, self._settings, self._growing), Images()
        return self._ready

    def _pool(self) -> Pool:
        return pool(self._threads, self._settings.spinning)

    def _form(self, specs: Mapping[str, TensorSpec], open_: Open) -> Form:
        return self._lowered(specs, open_)[0]

    def _lowered(self, specs: Mapping[str, TensorSpec], open_: Open) -> tuple[Form, Lowering]:
        from onnxplug_ep_cpu.codegen.lowering import lowered

        return lowered(self._prepare()[0], self._target, self._threads, self._pool, specs, open_)

    def __call__(self, context: Any, *inputs: Any) -> Sequence[Any]:
        raise NotImplementedError("a native region is bound before it runs")
