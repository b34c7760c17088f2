"""The forms of a kernel, called by themselves on the operands of a trial: what returns, what writes, what writes over an input.

A session of one node runs the writing form alone, on dense operands and memory that may happen to hold zeros.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxplug.contract import Into, Kernel, KernelDef, KernelRegistry, TensorSpec
from onnxplug_testkit.check import fail
from onnxplug_testkit.kernels.guards import Banded, banded, contents_of, read
from onnxplug_testkit.models import graph_of
from onnxplug_testkit.subject import Subject

Agree = Callable[[str, str, Sequence[Any]], None]
"""(check that fails, which form, its results): compares results with what the trial expects."""


def check_forms(
    subject: Subject, made: onnx.ModelProto, schema: Any, feeds: Mapping[str, Any], results: Sequence[Any],
    constants: Mapping[str, np.ndarray], rng: np.random.Generator, agree: Agree,
) -> None:  # fmt: skip
    """CheckFailed when a form of the kernel of a one-node model writes outside of its outputs or gives something else than ``results``.
    Nothing where operands are no dense tensors."""
    graph = graph_of(made, [] if schema is None else [schema])
    node = graph.nodes[0]
    operands = [None if v is None else feeds.get(v.name, constants.get(v.name)) for v in node.inputs]
    given = [v for v in (*operands, *results) if v is not None]
    if any(not isinstance(v, np.ndarray) or v.dtype.hasobject for v in given) or len(results) != len(node.outputs):
        return
    with subject.instance() as instance:
        found = (instance.call("get_kernel_registry") or KernelRegistry()).kernel_for(node)
        if not isinstance(found, KernelDef):
            return
        try:
            kernel = found.create(node)
        except NotImplementedError:
            # What compiles whatever it claims has no kernels; a session that asked would have failed.
            return
        held = [None if value is None else constants.get(value.name) for value in node.inputs]
        bench = _Bench(instance, found, kernel, operands, held, results, rng, agree)
        with _in_a_run(instance):
            bench.views()
            bench.returning()
            if isinstance(kernel, Kernel):
                bench.writing()


@contextlib.contextmanager
def _in_a_run(instance: Any) -> Iterator[None]:
    """What surrounds a run: there a provider makes the stream its own on which its kernels and copies are in order."""
    instance.call("on_run_start", options=None)
    try:
        yield
    except BaseException as error:
        instance.call("on_run_end", options=None, error=error)
        raise
    instance.call("on_run_end", options=None, error=None)


class _Bench:
    """One kernel of one instance, with the operands and results of a trial."""

    def __init__(
        self, instance: Any, definition: KernelDef, kernel: Any, operands: Sequence[Any], held: Sequence[Any], results: Sequence[Any],
        rng: np.random.Generator, agree: Agree,
    ) -> None:  # fmt: skip
        self.instance, self.definition, self.kernel, self.rng, self.agree = instance, definition, kernel, rng, agree
        self.operands, self.held, self.results = operands, held, results
        self.packed = kernel.packed if isinstance(kernel, Kernel) else ()

    def views(self) -> None:
        """What is declared a view of an input has the input's bytes."""
        for index, source in self.definition.alias.items():
            result = self.results[index] if index < len(self.results) else None
            operand = self.operands[source] if source < len(self.operands) else None
            if result is not None and operand is not None and result.tobytes() != operand.tobytes():
                fail("kernels.forms_agree", f"output {index} is declared a view of input {source} and has other bytes")

    def returning(self) -> None:
        """The returning form on dense operands and, where they are the host's, on operands with gaps, as views have them."""
        for what, arrange in (("returning form", np.ascontiguousarray), ("returning form, on views", _with_gaps)):
            with contextlib.ExitStack() as stack:
                inputs = self._inputs(stack, arrange)
                if arrange is _with_gaps and not self._on_host(inputs):
                    return
                try:
                    got = self.kernel(*self._arguments(inputs))
                except NotImplementedError:
                    return
                got = list(got) if isinstance(got, tuple) else [got]
                self._judge(what, [None if v is None else read(self.instance, v) for v in got])
                self._untouched(inputs)

    def writing(self) -> None:
        """The writing form between guard bands, on views, and over each input that it says it may overwrite."""
        into = self._bound()
        if into is None:
            return
        with contextlib.ExitStack() as stack:
            inputs = self._inputs(stack, np.ascontiguousarray)
            self._write(stack, into, inputs, "writing form")
            if self._on_host(inputs):
                self._write(stack, into, self._inputs(stack, _with_gaps), "writing form, on views")
        for index, sources in self.definition.inplace.items():
            for source in sources:
                self._over(into, index, source)

    def _bound(self) -> Into | None:
        ins = [
            None if v is None else TensorSpec(v.dtype, v.shape, held)
            for v, held in zip(self.operands, self.held, strict=True)
        ]
        into: Into | None = self.kernel.bind(
            ins, [None if v is None else TensorSpec(v.dtype, v.shape) for v in self.results]
        )
        return into

    def _over(self, into: Into, index: int, source: int) -> None:
        """Write output ``index`` into the memory of input ``source``, if they are of one shape and type, as plans do."""
        operand = self.operands[source] if source < len(self.operands) else None
        result = self.results[index] if index < len(self.results) else None
        if operand is None or result is None or self.held[source] is not None:
            return
        if operand.shape != result.shape or operand.dtype != result.dtype:
            return
        if source in self.definition.host_inputs or index in self.definition.host_outputs or source in self.packed:
            return
        with contextlib.ExitStack() as stack:
            inputs = self._inputs(stack, np.ascontiguousarray)
            place = inputs[source].shown_as(self.instance, result)
            self._write(stack, into, inputs, f"writing form, over input {source}", {index: place})

    def _write(
        self, stack: contextlib.ExitStack, into: Into, inputs: Sequence[Any], what: str, given: Mapping[int, Banded] | None = None
    ) -> None:  # fmt: skip
        given = given or {}
        outputs = [given.get(i, self._output(stack, i, v)) for i, v in enumerate(self.results)]
        scratch = [stack.enter_context(banded(self.instance, self._noise(into.workspace)))] if into.workspace else []
        into.call(*self._arguments(inputs), *map(_native, (*outputs, *scratch)))
        for kind, places in (("input", inputs), ("output", outputs), ("workspace", scratch)):
            for index, place in enumerate(places):
                whole = kind == "input" and not given
                if isinstance(place, Banded) and not place.keeps(read(self.instance, place.whole), whole):
                    where = f"to input {index}" if kind == "input" else f"outside of {kind} {index}"
                    fail("kernels.guard_bands", f"the kernel writes {where} ({what})")
        self._judge(
            what, [contents_of(self.instance, o, v) for o, v in zip(outputs, self.results, strict=True)], bool(given)
        )

    def _output(self, stack: contextlib.ExitStack, index: int, like: Any) -> Any:
        """Memory for an output, holding noise."""
        if like is None:
            return None
        noise = self._noise(like.nbytes).view(like.dtype).reshape(like.shape)
        if index in self.definition.host_outputs:
            return noise
        return stack.enter_context(banded(self.instance, noise, self.rng))

    def _noise(self, nbytes: int) -> np.ndarray:
        """What memory may hold that is not cleared: no zero in any type."""
        return np.full(nbytes, 0x7F, np.uint8)

    def _inputs(self, stack: contextlib.ExitStack, arrange: Callable[[np.ndarray], np.ndarray]) -> list[Any]:
        return [
            None if v is None
            else v.copy() if i in self.definition.host_inputs
            else stack.enter_context(banded(self.instance, v, self.rng, arrange))
            for i, v in enumerate(self.operands)
        ]  # fmt: skip

    def _on_host(self, inputs: Sequence[Any]) -> bool:
        return any(isinstance(v, Banded) for v in inputs) and all(
            isinstance(v.native, np.ndarray) for v in inputs if isinstance(v, Banded)
        )

    def _arguments(self, inputs: Sequence[Any]) -> list[Any]:
        return [None if i in self.packed else _native(v) for i, v in enumerate(inputs)]

    def _untouched(self, inputs: Sequence[Any]) -> None:
        for index, place in enumerate(inputs):
            if isinstance(place, Banded) and not place.keeps(read(self.instance, place.whole), True):
                fail("kernels.guard_bands", f"the kernel writes to input {index} (returning form)")

    def _judge(self, what: str, got: Sequence[Any], over: bool = False) -> None:
        wanted = [v is not None for v in self.results]
        self.agree(
            "kernels.in_place" if over else "kernels.forms_agree",
            what,
            [g for g, w in zip(got, wanted, strict=False) if w],
        )


def _native(operand: Any) -> Any:
    return operand.native if isinstance(operand, Banded) else operand


def _with_gaps(array: np.ndarray) -> np.ndarray:
    """The same elements in memory of another order, with gaps between them."""
    wide = np.zeros((*array.shape[::-1], 2), array.dtype)
    shown: np.ndarray = wide[..., 0].T
    shown[...] = array
    return shown
