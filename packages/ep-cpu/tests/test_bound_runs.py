"""Runs of a binding that go over the same memory again and again: what was made ready for them holds as long as nothing is bound anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from codegen_models import model, row
from onnx import helper

import onnxplug
from onnxplug.plugins.observers import register_observer, unregister_observer

NODES = (helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["y"], ["z"]))


def session(nodes: Sequence[Any] = NODES, options: Any = None, **inputs: np.ndarray) -> onnxplug.InferenceSession:
    """One region of the nodes, of which each makes an output."""
    names = [name for node in nodes for name in node.output]
    proto = model(nodes, inputs or {"x": row(4)}, names)
    made = onnxplug.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert len(made.explain().regions) == 1
    return made


def binding_of(made: Any, inputs: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray | None]) -> Any:
    binding = made.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, onnxplug.OrtValue.ortvalue_from_numpy(array))
    for name, room in results.items():
        if room is None:
            binding.bind_output(name)
        else:
            binding.bind_ortvalue_output(name, onnxplug.OrtValue.ortvalue_from_numpy(room))
    return binding


@pytest.mark.parametrize("given", [(), ("y",), ("y", "z")])
def test_each_run_reads_what_is_there_and_leaves_earlier_results(given: Sequence[str]) -> None:
    made, x = session(), row(4)
    room = {name: np.zeros(4, np.float32) if name in given else None for name in "yz"}
    binding = binding_of(made, {"x": x}, room)
    seen = []
    for seed in range(5):
        x[:] = row(4, seed)
        made.run_with_iobinding(binding)
        assert bool(binding._bound().idle) == (seed > 0), "ready from the second run on"
        values = binding.get_outputs()
        np.testing.assert_array_equal([value.numpy() for value in values], [-x, np.abs(x)])
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu(), [-x, np.abs(x)])
        seen.append((values, x.copy()))
    for values, was in seen:
        for name, value, due in zip("yz", values, (-was, np.abs(was)), strict=True):
            array = room[name]
            if array is None:
                np.testing.assert_array_equal(value.numpy(), due)
            else:
                assert value.data_ptr() == array.ctypes.data


def test_memory_that_is_an_inputs_or_shared_by_results_goes_the_whole_way() -> None:
    made, x = session(), row(4)
    shared = np.zeros(4, np.float32)
    for room in ({"y": x, "z": None}, {"y": shared, "z": shared}):
        was = x.copy()
        binding = binding_of(made, {"x": x}, room)
        for _ in range(4):
            made.run_with_iobinding(binding)
            assert not binding._bound().idle
            was, before = (-was if room["y"] is x else was), was
            np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), np.abs(before))
        np.testing.assert_array_equal(x, was)


def test_memory_of_another_size_is_refused_at_each_run() -> None:
    made = session()
    binding = binding_of(made, {"x": row(4)}, {"y": np.zeros(3, np.float32), "z": None})
    for _ in range(4):
        with pytest.raises(RuntimeError, match="Got invalid dimensions for output: y"):
            made.run_with_iobinding(binding)


def test_an_array_at_an_odd_address_is_read_at_each_run() -> None:
    x = np.zeros(17, np.uint8)[1:].view(np.float32)
    assert not x.flags.aligned
    made = session()
    binding = binding_of(made, {"x": x}, {"y": None, "z": None})
    for seed in range(4):
        x[:] = row(4, seed)
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -x)


def test_what_is_bound_anew_counts() -> None:
    made, x, other = session(), row(4), row(4, 1)
    binding = binding_of(made, {"x": x}, {"y": None, "z": None})
    for array in (x, other, x):
        binding.bind_cpu_input("x", array)
        for _ in range(3):
            made.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -array)
    binding.bind_output("z", "cpu")
    binding.clear_binding_outputs()
    binding.bind_output("z")
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu(), [np.abs(x)])


def test_data_that_a_node_refuses_fails_each_time_and_harms_no_later_run() -> None:
    index = np.zeros(2, np.int64)
    nodes = [helper.make_node("GatherElements", ["x", "i"], ["y"])]
    made = session(nodes, x=row(4), i=index)
    for room in (None, np.zeros(2, np.float32)):
        binding = binding_of(made, {"x": row(4), "i": index}, {"y": room})
        for first in (0, 1, 2, 9, 9, 3, 0):
            index[0] = first
            if first == 9:
                with pytest.raises(RuntimeError, match=r"^Error in execution: .*9 is no place"):
                    made.run_with_iobinding(binding)
            else:
                made.run_with_iobinding(binding)
                np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], row(4)[index])


def test_who_watches_sees_each_run() -> None:
    class Watching:
        runs = 0

        def onnxplug_run_end(self, error: Any) -> None:
            self.runs += 1

    made, watching = session(), Watching()
    binding = binding_of(made, {"x": row(4)}, {"y": None, "z": None})
    for _ in range(3):
        made.run_with_iobinding(binding)
    register_observer(watching)
    try:
        for _ in range(3):
            made.run_with_iobinding(binding)
    finally:
        unregister_observer(watching)
    made.run_with_iobinding(binding)
    assert watching.runs == 3
    options = onnxplug.RunOptions()
    options.terminate = True
    with pytest.raises(RuntimeError, match="terminate"):
        made.run_with_iobinding(binding, options)


def test_a_profile_has_each_run(tmp_path: Any) -> None:
    options = onnxplug.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    made = session(options=options)
    binding = binding_of(made, {"x": row(4)}, {"y": None, "z": None})
    for _ in range(4):
        made.run_with_iobinding(binding)
    with open(made.end_profiling()) as file:
        assert file.read().count('"model_run"') == 4
