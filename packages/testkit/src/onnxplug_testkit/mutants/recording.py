"""L3: mutants that record what runs do and replay it; the unchanged one of them is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from onnxplug.contract import Into, Kernel, KernelRegistry, SessionContext
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import subject
from onnxplug_testkit.subject import Subject

Work = list[tuple[Callable[..., object], tuple[Any, ...]]]


class _Launched(Kernel):
    """A kernel whose writing form goes by way of the provider."""

    def __init__(self, kernel: Any, provider: Recording) -> None:
        self._kernel, self._provider = kernel, provider

    def __call__(self, *inputs: Any) -> Any:
        return self._kernel(*inputs)

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        into = self._kernel.bind(inputs, outputs)
        return None if into is None else Into(lambda *operands: self._provider.launch(into.call, operands))


class Recording(ReferenceProvider):
    """Records calls with the memory that they were given; what is recorded does not run."""

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self._works: dict[int, Work] = {}
        self._work: Work | None = None

    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry(
            dataclasses.replace(d, create=lambda node, d=d: _Launched(d.create(node), self))  # type: ignore[misc]
            for d in super().get_kernel_registry()
        )

    def launch(self, call: Callable[..., object], operands: Sequence[Any]) -> None:
        """Run a call, or record it."""
        if self._work is None:
            call(*operands)
        else:
            self._work.append((call, tuple(operands)))

    def is_graph_captured(self, graph_id: int) -> bool:
        return graph_id in self._works

    def begin_capture(self, graph_id: int) -> None:
        self._work = self._works[graph_id] = []

    def end_capture(self, graph_id: int) -> None:
        self._work = None

    def replay_graph(self, graph_id: int) -> None:
        for call, operands in self._works[graph_id]:
            call(*operands)

    def release_graph(self, graph_id: int) -> None:
        self._works.pop(graph_id, None)


class _Finished(Recording):
    def launch(self, call: Callable[..., object], operands: Sequence[Any]) -> None:
        call(*operands)


@mutant("graph.recorded_runs")
def runs_while_it_records() -> Subject:
    """Runs what it is to record, once, and has nothing to do when it replays."""
    return subject(_Finished)


class _Latest(Recording):
    def replay_graph(self, graph_id: int) -> None:
        super().replay_graph(next(reversed(self._works)))


@mutant("graph.recorded_runs")
def replays_the_latest() -> Subject:
    """Replays what it recorded last, whatever the id."""
    return subject(_Latest)


class _Lasting(Recording):
    def begin_capture(self, graph_id: int) -> None:
        self._work = self._works.setdefault(graph_id, [])

    def release_graph(self, graph_id: int) -> None:
        """What is recorded may be of use again."""


@mutant("graph.recorded_runs")
def records_on() -> Subject:
    """Goes on with a recording that was released, of which the memory is gone."""
    return subject(_Lasting)
