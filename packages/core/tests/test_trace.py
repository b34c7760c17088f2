"""The profile as a trace: each event keeps to the Trace Event Format, and those of one thread nest, so that Perfetto and
chrome://tracing draw them one inside the other."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_providers import CPU, OwnProvider, offered
from core_sessions import PLAIN, PROFILED, REFERENCE, options_with, session

from onnxplug.cli.profile import operators
from onnxplug.contract import DeviceWork

Events = list[dict[str, Any]]

FIELDS = {"cat": str, "name": str, "ph": str, "ts": int, "dur": int, "pid": int, "tid": int, "args": dict}


def read(path: str) -> Events:
    """The events of a file, strictly: an array of objects, one a line, no NaN and no name twice in an object."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(pairs) == len(dict(pairs))
        return dict(pairs)

    def refused(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    text = Path(path).read_text(encoding="utf-8")
    events: Events = json.loads(text, object_pairs_hook=once, parse_constant=refused)
    assert len(text.splitlines()) == len(events) + 2
    return events


def check(events: Events) -> None:
    """Fields, types, and the nesting of what each thread did."""
    tracks: dict[tuple[int, int], Events] = {}
    for event in events:
        assert {name: type(value) for name, value in event.items()} == FIELDS, event
        assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] >= 0 and event["name"]
        assert event["cat"] in ("Session", "Node", "Kernel")
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for track in tracks.values():
        ends: list[int] = []
        for event in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1], f"{event['name']} ends after what it began in"
            ends.append(end)


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    source, providers = request.param
    options = options_with(enable_profiling=True, profile_file_prefix=str(tmp_path / "p"))
    return session(source, providers, options)


CONTROL = {"x": np.ones(2, np.float32), "b": np.array(True), "n": np.array(3)}
ROW = {"x": np.ones((3, 2), np.float32)}


@pytest.mark.parametrize(
    ("made", "feed"),
    [((PLAIN, [CPU]), ROW), ((PLAIN, [REFERENCE, CPU]), ROW), ((PROFILED, [CPU]), CONTROL), ((PROFILED, [REFERENCE]), CONTROL)],
    indirect=["made"],
)  # fmt: skip
def test_every_event(made: Any, feed: dict[str, np.ndarray]) -> None:
    for _ in range(3):
        made.run(None, feed)
    binding = made.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    events = read(made.end_profiling())
    check(events)
    names = [event["name"] for event in events]
    stages = {"model_loading_array", "session_initialization", "graph_building", "graph_optimization", "placement"}
    assert (
        stages | {"kernel_creation", "model_run", "SequentialExecutor::Execute"} <= set(names)
        and names.count("model_run") == 4
    )
    assert {event["pid"] for event in events} == {os.getpid()}
    nodes = [event for event in events if event["cat"] == "Node"]
    assert nodes and all({"op_name", "provider", "output_size"} <= set(event["args"]) for event in nodes)
    if made.get_providers()[0] == REFERENCE:
        assert {"Memcpy"} <= {event["args"]["op_name"] for event in nodes}


@pytest.mark.parametrize("made", [(PROFILED, [CPU])], indirect=True)
def test_threads_have_tracks_of_their_own(made: Any) -> None:
    gate = threading.Barrier(4)

    def work() -> None:
        gate.wait()
        for _ in range(5):
            made.run(None, CONTROL)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = read(made.end_profiling())
    check(events)
    runs = [event["tid"] for event in events if event["name"] == "model_run"]
    assert len(runs) == 20 and len(set(runs)) == 4


def test_what_a_device_times_lies_in_the_step_that_it_belongs_to(tmp_path: Path) -> None:
    """And counts in place of that step's own time, of profiled runs only."""
    told: list[DeviceWork] = []

    class Timing(OwnProvider):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            self.nodes = list(graph.nodes)
            return super().get_capability(graph, kernels)

        def device_work(self) -> list[DeviceWork]:
            now = time.perf_counter_ns()
            told.extend(DeviceWork(node.name, [node], f"k_{node.op_type}", now - 1500, now) for node in self.nodes)
            return told[-len(self.nodes) :]

    options = options_with(enable_profiling=True, profile_file_prefix=str(tmp_path / "p"))
    with offered(AcmeExecutionProvider=Timing):
        made = session(PLAIN, ["AcmeExecutionProvider"], options)
        made.run(None, ROW)
        path = made.end_profiling()
        made.run(None, ROW)
    events = read(path)
    launches = [e["args"] for e in events if e["cat"] == "Kernel"]
    assert len(told) == 3 and [e["region"] for e in launches] == [work.step for work in told]
    assert [e["nodes"] for e in launches] == [[work.nodes[0].name] for work in told]
    steps = operators(path, warmup=0)
    assert sorted((s["op_type"], s["calls"]) for s in steps) == [("Abs", 1), ("Add", 1), ("Neg", 1)]
    assert all(1e-6 <= s["seconds"] <= 2e-6 for s in steps)
