"""What a session tells: profile, placement and explanation, observers."""

from __future__ import annotations

import collections
import gc
import json
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import CPU, OwnProvider, offered
from core_sessions import PLAIN, PROFILED, REFERENCE, X, name_of, options_with, session

import onnxplug
from onnxplug.cli.explain import summary
from onnxplug.contract import (
    Device,
)
from onnxplug.contract.errors import (
    STATUS_ERRORS,
    Fail,
)
from onnxplug.plugins import register_observer, unregister_observer

# ---- profile


@pytest.mark.parametrize("providers", [[CPU], [REFERENCE, CPU]])
def test_the_profile_agrees_with_the_placement(tmp_path: Path, providers: list[str]) -> None:
    options = options_with(enable_profiling=True, profile_file_prefix=str(tmp_path / "run"))
    options.add_session_config_entry("ep.cpu.codegen", "0")  # a step for each node
    made = session(PROFILED, providers, options)
    feeds = {"x": np.ones(2, np.float32), "b": np.array(True), "n": np.array(3)}
    for _ in range(2):
        made.run(None, feeds)
    started = made.get_profiling_start_time_ns()
    assert started > 0
    path = made.end_profiling()
    assert made.end_profiling() == "" and made.get_profiling_start_time_ns() == started
    assert re.fullmatch(r"run_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}\.json", Path(path).name)
    text = Path(path).read_text()
    events = json.loads(text)
    assert len([line for line in text.splitlines() if line.startswith("{")]) == len(events), "an event is a line"
    assert all({"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"} <= set(e) and e["dur"] >= 0 for e in events)
    assert [e["name"] for e in events if e["cat"] == "Session"].count("model_run") == 2
    placement = made.placement()
    ran = collections.Counter()
    for event in events:
        arguments = event["args"]
        if event["cat"] != "Node" or arguments["op_name"] in ("If", "Loop", "Memcpy"):
            continue
        assert event["name"] == f"{arguments['node_name']}_kernel_time"
        assert placement[arguments["node_name"]] == arguments["provider"]
        ran[arguments["node_name"]] += 1
    skipped = {"If_0/Abs_0"} | {n for n in placement if n.endswith("Identity_0")}
    assert {n: c for n, c in ran.items() if n not in skipped} == {
        n: 6 if n.startswith("Loop") else 2 for n in placement if n not in skipped}  # fmt: skip
    made.run(None, feeds)
    sizes = next(e["args"] for e in events if e["cat"] == "Node" and e["args"]["op_name"] == "Sin")
    assert sizes["input_type_shape"] == [{"float": [2]}] and sizes["output_size"] == "8"


def test_a_profile_nests_and_shows_stages_and_copies(tmp_path: Path) -> None:
    """What trace viewers need: complete events that lie inside or beside each other in each thread."""
    (tmp_path / "m.onnx").write_bytes(PROFILED)
    options = options_with(enable_profiling=True, profile_file_prefix=str(tmp_path / "run"))
    made = session(str(tmp_path / "m.onnx"), [REFERENCE, CPU], options)
    feeds = {"x": np.ones(2, np.float32), "b": np.array(True), "n": np.array(3)}
    thread = threading.Thread(target=made.run, args=(None, feeds))
    thread.start()
    thread.join()
    made.run(None, feeds)
    events = json.loads(Path(made.end_profiling()).read_text())
    names = [e["name"] for e in events]
    for stage in ("graph_building", "graph_optimization", "placement", "kernel_creation", "session_initialization"):
        assert names.count(stage) == 1
    assert names.count("model_loading_uri") == 1 and len({e["tid"] for e in events}) == 2
    for tid in {e["tid"] for e in events}:
        open_until: list[int] = []
        for event in sorted((e for e in events if e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1], event
            open_until.append(event["ts"] + event["dur"])
    nodes = [e["args"] for e in events if e["cat"] == "Node"]
    keys = {
        "op_name",
        "provider",
        "node_index",
        "parameter_size",
        "activation_size",
        "output_size",
        "thread_scheduling_stats",
    }
    assert all(keys <= set(n) and all(isinstance(n[k], str) for k in keys) for n in nodes)
    copies = [(n["source"], n["target"], n["output_type_shape"]) for n in nodes if n["op_name"] == "Memcpy"]
    device = next(t for _, t, _ in copies if t != "cpu:0")
    assert ("cpu:0", device, [{"float": [2]}]) in copies and (device, "cpu:0", [{"float": [2]}]) in copies


def test_a_profile_that_cannot_be_written(tmp_path: Path) -> None:
    made = session(options=options_with(enable_profiling=True, profile_file_prefix=str(tmp_path / "nowhere" / "run")))
    made.run(None, {"x": X})
    with pytest.raises(Fail, match="nowhere"):
        made.end_profiling()


def profiled(ort: Any, prefix: Path) -> Any:
    """A session that profiles, after a run."""
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(prefix)
    made = ort.InferenceSession(PLAIN, options, providers=[CPU])
    made.run(None, {"x": X})
    return made


def test_a_session_that_goes_leaves_its_profile(ort: Any, tmp_path: Path) -> None:
    made = profiled(ort, tmp_path / "run")
    del made
    gc.collect()
    (path,) = tmp_path.iterdir()
    assert "model_run" in {event["name"] for event in json.loads(path.read_text())}


def test_a_closed_session_leaves_its_profile(tmp_path: Path) -> None:
    with profiled(onnxplug, tmp_path / "run"):
        pass
    assert len(list(tmp_path.iterdir())) == 1
    made = profiled(onnxplug, tmp_path / "again")
    name = made.end_profiling()
    Path(name).unlink()
    made.close()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_process_that_ends_leaves_its_profiles(tmp_path: Path) -> None:
    """Also one of which another was forked, whose profile it is not; what cannot be written is told."""
    program = (
        "import os, sys, onnxplug\n"
        "def made(prefix):\n"
        "    options = onnxplug.SessionOptions()\n"
        "    options.enable_profiling, options.profile_file_prefix = True, prefix\n"
        "    return onnxplug.InferenceSession(bytes.fromhex(sys.argv[1]), options, providers=['CPUExecutionProvider'])\n"
        "one, other = made(sys.argv[2] + '/run'), made(sys.argv[2] + '/nowhere/run')\n"
        "if hasattr(os, 'fork') and os.fork() == 0:\n    sys.exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, PLAIN.hex(), str(tmp_path)], capture_output=True, text=True, check=True
    )
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text()) and done.stderr.count("Cannot write the profile to") == 1


# ---- placement and explanation


def test_explain_says_everything() -> None:
    with offered(OwnExecutionProvider=lambda: OwnProvider(Device("own"), wanted=["Neg_0", "Add_0"])):
        made = session(
            model("g (float[2] x) => (float[2] y) { i = Identity(x) h = Neg(i) a = Abs(h) y = Add(a, h) }"),
            ["OwnExecutionProvider"],
        )
        explained = made.explain()
        assert {n["name"]: n["provider"] for n in explained.nodes} == made.placement()
        assert explained.removed == {"Identity_0": "EliminateIdentity"}
        absolute = next(n for n in explained.nodes if n["name"] == "Abs_0")
        assert absolute["reasons"] == {"OwnExecutionProvider": "not claimed by get_capability"}
        assert [(c["value"], c["from"], c["to"]) for c in explained.copies] == [
            ("h", "own:0", "cpu:0"),
            ("a", "cpu:0", "own:0"),
        ]
        assert [e["value"] for e in explained.edges] == ["x", "y"]
        assert [(p["name"], p["nodes"]) for p in explained.providers] == [("OwnExecutionProvider", 2), (CPU, 1)]
        json.dumps(explained.to_dict())
        assert "Abs_0 (Abs-13): CPUExecutionProvider" in str(explained)


def test_explain_tells_shape_computation_apart() -> None:
    with offered(OwnExecutionProvider=lambda: OwnProvider(Device("own"), wanted=["Neg_0"])):
        text = """g (float[N, 2] x) => (float[?, ?] y, int64[?, ?] w) <int64[1] a = {0}, int64[1] b = {1}, int64[1] c = {-1}> {
            n = Neg(x) s = Shape(x) t = Slice(s, a, b) u = Concat<axis = 0>(t, c) y = Reshape(n, u) z = NonZero(x) w = Add(z, z) }"""
        made = session(model(text), ["OwnExecutionProvider"])
        explained = made.explain()
        assert {n["op_type"] for n in explained.nodes if n["shapes"]} == {"Shape", "Slice", "Concat"}
        assert [(p["nodes"], p["shapes"]) for p in explained.providers] == [(1, 0), (6, 3)]
        assert f"  {CPU}: 6 nodes, 3 of which only compute shapes" in str(explained)
        numbers = summary(explained.to_dict())
        assert numbers["shapes"] == 3
        assert numbers["share_but_shapes"] == {"OwnExecutionProvider": 0.25, CPU: 0.75}


def test_the_assignment_as_onnxruntime_tells_it(ort: Any) -> None:
    made = ort.InferenceSession(PLAIN, providers=[CPU])
    with pytest.raises(Exception, match=r"session\.record_ep_graph_assignment_info"):
        made.get_provider_graph_assignment_info()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    made = ort.InferenceSession(PLAIN, options, [CPU])
    groups = made.get_provider_graph_assignment_info()
    assert {g.ep_name for g in groups} == {CPU}
    assert sorted(n.op_type for g in groups for n in g.get_nodes()) == ["Abs", "Add", "Neg"]


# ---- observers


class Watcher:
    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def onnxplug_session_created(self, session: Any) -> None:
        self.told.append(("created", session.get_providers()))

    def onnxplug_placed(self, placement: Any) -> None:
        self.told.append(("placed", sorted(placement)))

    def onnxplug_run_start(self, options: Any) -> None:
        self.told.append(("start", options))

    def onnxplug_run_end(self, error: Any) -> None:
        self.told.append(("end", None if error is None else name_of(error)))


def test_observers() -> None:
    watcher = Watcher()
    register_observer(watcher)
    try:
        made = session()
        assert watcher.told == [("created", [CPU]), ("placed", ["Abs_0", "Add_0", "Neg_0"])]
        watcher.told.clear()
        options = onnxplug.RunOptions()
        made.run(None, {"x": X}, options)
        options.terminate = True
        with pytest.raises(Fail):
            made.run(None, {"x": X}, options)
        assert watcher.told == [("start", options), ("end", None), ("start", options), ("end", "Fail")]
        with pytest.raises(STATUS_ERRORS):
            session(b"garbage")
        assert len(watcher.told) == 4, "what was not made is not told"
    finally:
        unregister_observer(watcher)
    made.run(None, {"x": X})
    assert len(watcher.told) == 4


def test_an_observer_that_raises_is_told_no_more() -> None:
    class Bad:
        def onnxplug_run_start(self, session: Any) -> None:
            raise ZeroDivisionError

    bad, made = Bad(), session()
    register_observer(bad, "bad")
    try:
        with pytest.warns(
            RuntimeWarning, match="observer bad is disabled: onnxplug_run_start raised ZeroDivisionError"
        ):
            assert made.run(["y"], {"x": X})[0].tolist() == [[1, 2]]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made.run(None, {"x": X})
    finally:
        unregister_observer(bad)
