"""L3: runs whose device work is recorded once and replayed."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

import onnxplug
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.graph import agree
from onnxplug_testkit.checks.patterns import behind
from onnxplug_testkit.models import chain, dag, expected, open_session
from onnxplug_testkit.rounding import bounds
from onnxplug_testkit.subject import Subject

GRAPHS = 3
RUNS = (1, 1, 1, 2, 1, 2, 2, 0, 2, 1, 0, 0, -1, 1, 2, -1)
"""Ids of recordings, run by run; -1: none. The third run of an id is the first that may be a replay."""
ROWS = {0: 4, 1: 4, 2: 9, -1: 9}
"""Rows that are fed under an id."""


@check("graph.recorded_runs")
def recorded_runs(subject: Subject, seed: int) -> None:
    """Runs that are recorded and replayed give the oracle's results for what is fed then, under several ids, and when one was released."""
    options = _recording(subject)
    replays: list[int] = []

    def noting(provider: Any) -> Any:
        replay = provider.replay_graph

        def replay_graph(graph_id: int) -> None:
            replays.append(graph_id)
            replay(graph_id)

        provider.replay_graph = replay_graph
        return provider

    for number in range(GRAPHS):
        rng = np.random.default_rng([seed, number])
        made = dag(subject, rng) if number else chain(subject, 5)
        with (
            subject.watched(noting),
            open_session(subject, made, *behind(subject), options=options) as session,
        ):
            _run(session, made, rng, subject)
    if not replays:
        raise Unsupported("recordings", "of no graph it takes everything, inputs and outputs included")


def _run(session: onnxplug.InferenceSession, made: onnx.ModelProto, rng: np.random.Generator, subject: Subject) -> None:
    first: list[np.ndarray] = []
    for round_ in range(2):
        for graph_id in RUNS:
            rows = ROWS[graph_id] + round_
            feeds = {v.name: rng.standard_normal((rows, 16)).astype(np.float32) for v in made.graph.input}
            got = session.run(None, feeds, _under(graph_id))
            want = expected(made, feeds, subject.name)
            agree(got, want, [2 * error for error in bounds(made, feeds)], f"a run with gpu_graph_id = {graph_id}")
            first, kept = first or got, [result.copy() for result in first or got]
            session.run(None, {name: np.zeros_like(x) for name, x in feeds.items()}, _under(graph_id))
            same = all(a.tobytes() == b.tobytes() for a, b in zip(first, kept, strict=True))
            assert same, "a replay changes the results of an earlier run"
        for graph_id in (1, 0, 2):
            session.release_captured_graph(graph_id)


def _under(graph_id: int) -> onnxplug.RunOptions:
    options = onnxplug.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


def _recording(subject: Subject) -> dict[str, str]:
    """Options under which the subject records: its own, or those with one switch turned."""
    for options in ({}, *_switched(subject)):
        with subject.instance(**options) as instance:
            if instance.supports("begin_capture"):
                return options
    raise Unsupported("recordings")


def _switched(subject: Subject) -> Iterator[dict[str, str]]:
    hints = typing.get_type_hints(subject.spec.options)
    for field in dataclasses.fields(subject.spec.options):
        if hints[field.name] is bool and not field.metadata.get("idle"):
            yield {field.name: str(int(not field.default))}
