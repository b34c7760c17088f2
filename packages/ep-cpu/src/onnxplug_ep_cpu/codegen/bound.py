"""A region for one signature, run as one native call."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, Fail, Region, RunContext, TensorSpec, TripOperand, Watch
from onnxplug.contract.errors import TERMINATED
from onnxplug_ep_cpu.codegen.driver import STATUS
from onnxplug_ep_cpu.codegen.image import Image
from onnxplug_ep_cpu.codegen.pool import Pool

Number = Callable[[np.ndarray], np.ndarray]
"""Words -> their numbers."""

FINE = bytes(8)
"""The status of a program that found nothing wrong with its data."""


def _never(*operands: Any) -> bool:
    """The function of a program that has none (see ``Image.function``)."""
    return False


class BoundRegion(CompiledRegion):
    """A region for one signature: an image the driver runs. ``made`` are the specs of what it writes; ``words``: the lists in
    which it computes places, for outputs that are strings; ``numbered``: what gives the numbers of words, for operands that are
    strings; ``otherwise`` makes what runs on data that the program cannot answer to. Keeps no state between runs."""

    def __init__(
        self,
        region: Region,
        specs: Mapping[str, TensorSpec],
        made: Mapping[str, TensorSpec],
        words: Mapping[str, np.ndarray],
        numbered: Sequence[tuple[int, Number]],
        image: Image,
        threads: Pool,
        otherwise: Callable[[], CompiledRegion],
    ) -> None:
        self._numbered, self._otherwise = numbered, otherwise
        self._region, self._specs, self._image, self._pool = region, specs, image, threads
        self._shapes = [made[v.name].shape for v in region.outputs]
        self._makes = [(made[v.name].shape, made[v.name].dtype) for v in region.outputs]
        self._known = [
            (i, s.constant) for i, v in enumerate(region.outputs) if (s := made[v.name]).constant is not None
        ]
        self._words = [(i, words[v.name]) for i, v in enumerate(region.outputs) if v.name in words]
        self._direct = _never if self._known else image.function(threads.entry) or _never

    def output_shapes(self, inputs: Any) -> Any:
        return self._shapes

    def workspace(self, inputs: Any) -> int:
        return self._image.workspace

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        made = self._with_places(outputs) if self._words else outputs
        if self._run(context, self._operands(inputs) if self._numbered else inputs, made):
            self._spell(made, outputs)
        else:
            for output, result in zip(outputs, self._run_otherwise(context, inputs), strict=True):
                if output is not None:
                    output[...] = result
        return True

    def function(self) -> Callable[..., bool] | None:
        if self._direct is _never:
            return None
        return self._spelling() if self._words or self._numbered else self._direct

    def _spelling(self) -> Callable[..., bool]:
        """The function of a region with operands or outputs that are strings."""
        direct, last, empty = self._direct, 1 + len(self._region.inputs), np.empty
        numbered = [(1 + index, number) for index, number in self._numbered]
        spelled = [(last + index, self._shapes[index], words.take) for index, words in self._words]

        def run(*operands: Any) -> bool:
            given = list(operands)
            for at, number in numbered:
                given[at] = number(given[at])
            for at, shape, _ in spelled:
                given[at] = empty(shape, np.int64)
            done = direct(*given)
            if done:
                for at, _, take in spelled:
                    take(given[at], None, operands[at], "clip")
            return done

        return run

    def _with_places(self, outputs: Sequence[Any]) -> list[Any]:
        """The outputs, with arrays for places instead of those for words."""
        made = list(outputs)
        for index, _ in self._words:
            made[index] = np.empty(self._shapes[index], np.int64)
        return made

    def _spell(self, made: Sequence[Any], outputs: Sequence[Any]) -> None:
        for index, words in self._words:
            if outputs[index] is not None:
                words.take(made[index], None, outputs[index], "clip")  # without a copy, which the other modes make

    def trips(self, inputs: Sequence[TripOperand], outputs: Sequence[TripOperand]) -> Callable[..., int] | None:
        image = self._image
        if len(image.records) > 1 or self._known or self._numbered or self._words:
            return None
        from onnxplug_ep_cpu.codegen.trips import table

        return self._pool.trips(image, table((*inputs, *outputs)))

    def _operands(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs, with numbers for words: 0 for those that no node knows."""
        operands = list(inputs)
        for index, number in self._numbered:
            operands[index] = number(operands[index])
        return operands

    def _run(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Run the program; False where it found data that it cannot answer to."""
        operands = [x if x.flags.num & 1 else np.ascontiguousarray(x) for x in inputs]
        image = self._image
        bases, records = image.bases(id(context.workspace), *map(id, operands), *map(id, outputs)), image.records
        watch = context.watch()
        if watch is not None:
            self._run_watched(context, bases, watch)
        else:
            self._pool.run(records[0], bases, image.shared)
            for part in records[1:]:
                if context.cancelled():
                    raise Fail(TERMINATED)
                self._pool.run(part, bases, image.shared)
        for index, constant in self._known:
            if outputs[index] is not None:
                outputs[index][...] = constant
        return not image.checked or self._is_fine(context)

    def _run_watched(self, context: RunContext, bases: bytes, watch: Watch) -> None:
        for nodes, part in self._image.parts():
            if context.cancelled():
                raise Fail(TERMINATED)
            start = time.perf_counter_ns()
            self._pool.run(part.ctypes.data, bases, self._image.shared)
            watch(nodes, self._specs, start, time.perf_counter_ns())

    @staticmethod
    def _is_fine(context: RunContext) -> bool:
        return bool(context.workspace[8 * STATUS : 8 * STATUS + 8].tobytes() == FINE)

    def _run_otherwise(self, context: RunContext, inputs: Sequence[Any]) -> Sequence[Any]:
        from onnxplug_ep_cpu.codegen.packer import aligned_zeros

        other = self._otherwise()
        workspace = aligned_zeros((other.workspace([x.shape for x in inputs]),), np.uint8)
        return other(dataclasses.replace(context, workspace=workspace), *inputs)

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        outputs = [np.empty(shape, dtype) for shape, dtype in self._makes]
        operands = self._operands(inputs) if self._numbered else inputs
        direct = context.watch() is None and self._direct(context.workspace, *operands, *outputs)
        if not direct and not self._run(context, operands, outputs):
            return self._run_otherwise(context, inputs)
        for index, words in self._words:
            outputs[index] = words.take(outputs[index])
        return outputs
