"""What ``nox -s gpu`` runs on a GPU, as far as none is needed: its models, its score, its verdicts and its results file."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.contract import Unavailable
from onnxplug_ep_cuda import device

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
CPU = "CPUExecutionProvider"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of benchmarks/."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.mark.parametrize("name", ["resnet50", "bert_base", "vit_b16", "gpt2 decode"])
def test_architectures_are_models_and_pytorch_has_all_their_operators(tool: Any, name: str) -> None:
    models = tool("gpu_models")
    assert name in models.ARCHITECTURES
    made = models.small(name)
    assert {node.op_type for node in made.model.graph.node} <= set(tool("gpu_torch").operators())
    for batch in (1, 3):
        feeds = made.feeds(batch)
        wanted = ReferenceEvaluator(made.model).run(None, feeds)
        session = onnxplug.InferenceSession(made.model.SerializeToString(), providers=[CPU])
        results = session.run(None, feeds)
        assert results[0].shape[0] == batch and tool("gpu_parts").largest_error(results, wanted) < 2e-5


@pytest.mark.parametrize("name", ["bert, optimized", "decoder of 4 bits", "integers", "volumes", "sound"])
def test_models_of_tools_run_and_two_ways_of_the_processor_agree(tool: Any, name: str) -> None:
    contrib, largest = tool("gpu_contrib"), tool("gpu_parts").largest_error
    assert name in contrib.MODELS
    made = contrib.MODELS[name]()
    data, feeds = made.model.SerializeToString(), made.feeds(2)
    plain = onnxplug.SessionOptions()
    plain.add_session_config_entry("ep.cpu.codegen", "0")
    results = [
        onnxplug.InferenceSession(data, options, providers=[CPU]).run(None, feeds)
        for options in (onnxplug.SessionOptions(), plain)
    ]
    assert np.ptp(results[0][0]) > 0
    assert largest(*results) < contrib.LARGEST_ERRORS.get(name, 2e-5)


def test_the_score_counts_what_is_right_and_where_it_ran(tool: Any) -> None:
    score = tool("backend_score").score
    found = score(CPU, ["test_relu", "test_softmax_axis_1"])
    assert (found["cases"], found["right"], found["on_first"], found["wrong"]) == (2, 2, 2, {})
    missing = score("ReferenceExecutionProvider", ["test_relu"])
    assert missing["right"] == missing["on_first"] == 1


def test_errors_are_shares_of_the_largest_result(tool: Any) -> None:
    error = tool("gpu_parts").largest_error
    assert error([np.array([1.0, 99.0])], [np.array([0.0, 100.0])]) == pytest.approx(0.01)
    assert error([np.array([np.nan])], [np.array([1.0])]) == float("inf")


@pytest.mark.parametrize(
    ("counts", "ok"), [((9, 0, 0, 2), True), ((9, 1, 0, 0), False), ((9, 0, 1, 0), False), ((9, 0, 0, 9), False)]
)
def test_tests_that_all_skip_are_no_success(tool: Any, counts: tuple[int, ...], ok: bool) -> None:
    names = ("tests", "failures", "errors", "skipped")
    given = {name: str(count) for name, count in zip(names, counts, strict=True)}
    root = ElementTree.fromstring("<testsuites/>")
    ElementTree.SubElement(root, "testsuite", given)
    assert tool("gpu_parts").counted(root)["ok"] is ok


@pytest.fixture
def parts(tool: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The session with parts that need no device."""
    gpu, part = tool("gpu"), tool("gpu_parts").Part

    def breaks() -> list[str]:
        raise RuntimeError("the list is lost")

    def conclude(rows: Any) -> dict[str, Any]:
        return {"ok": None, "rows": list(rows)}

    made = {"smoke": part(lambda: ["a", "b", "c"], None, conclude, 60), "kit": part(breaks, None, conclude, 60)}
    monkeypatch.setattr(gpu, "PARTS", made)
    monkeypatch.setattr(gpu, "side_by_side", lambda command, items, *_: [{"item": item} for item in items])
    return gpu


def options(folder: Path, **given: Any) -> argparse.Namespace:
    plain = {
        "command": "nox -s gpu",
        "seconds": 1,
        "minutes": None,
        "out": folder,
        "slice": (1, 1),
        "jobs": 1,
        "level": "robust",
        "search": "EXHAUSTIVE",
    }
    return argparse.Namespace(**plain | given)


ABOUT = {"name": "NVIDIA H200", "driver": "570.1"}


def test_a_part_that_breaks_is_a_result_and_the_others_are_written(parts: Any, tmp_path: Path) -> None:
    arguments = options(tmp_path)
    found = parts.run(["kit", "smoke"], arguments, ABOUT)
    assert parts.failed(found) == ["kit"] and "the list is lost" in found["kit"]["error"]
    (path,) = tmp_path.iterdir()
    read = json.loads(path.read_text())
    assert path.name == f"{found['date']}-nvidia-h200.json"
    assert read["device"] == ABOUT and len(read["smoke"]["rows"]) == 3 and "cpu" in read["machine"]


def test_what_there_is_of_a_part_is_written(parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[str, Any]] = []

    def cut(command: Any, items: Any, seconds: float, deadline: Any, jobs: int, told: Any) -> Any:
        told([{"item": "a"}])
        (path,) = tmp_path.iterdir()
        found.append(json.loads(path.read_text()))
        return [{"item": item} for item in items]

    monkeypatch.setattr(parts, "side_by_side", cut)
    parts.run(["smoke"], options(tmp_path), ABOUT)
    assert found[0]["smoke"] == {"ok": None, "under_way": True, "rows": [{"item": "a"}]}


def test_a_slice_has_every_nth_item_and_a_file_of_its_own(parts: Any, tmp_path: Path) -> None:
    found = parts.run(["smoke"], options(tmp_path, slice=parts.share("2/2")), ABOUT)
    assert found["smoke"]["rows"] == [{"item": "b"}]
    (path,) = tmp_path.iterdir()
    assert path.name.endswith("-nvidia-h200-smoke-2of2.json")
    for wrong in ("0/2", "3/2", "2", "a/b"):
        with pytest.raises(ValueError):
            parts.share(wrong)


def test_a_slice_of_the_score_is_no_verdict(tool: Any) -> None:
    scored, row = tool("gpu_parts").scored, {"item": "a", "on_first": True}
    assert scored([row])["ok"] is None
    assert scored([row] * 2018)["ok"] is True and scored([{"item": "a", "error": "wrong"}] * 2018)["ok"] is False


def test_results_of_some_parts_have_a_file_of_their_own(parts: Any, tmp_path: Path) -> None:
    path = parts.write({"date": "2030-01-02", "device": ABOUT}, ["smoke"], tmp_path / "new")
    assert path.name == "2030-01-02-nvidia-h200-smoke.json"


def test_the_first_part_is_the_shortest_and_items_have_names(tool: Any) -> None:
    found = tool("gpu_parts").PARTS
    assert list(found) == ["smoke", "tests", "zoo", "score", "speed", "kit"]
    items = {name: list(part.items()) for name, part in found.items()}
    for name, part in found.items():
        assert len(items[name]) == len(set(items[name])) > 0 and part.seconds > 0
    assert len(items["speed"]) == 12 and len(items["score"]) >= 2018
    tests = items["tests"]
    assert "test_values_stay_on_the_device" in tests
    assert sum(item.startswith(found["tests"].apart) for item in tests) == 2
    assert sum(item.startswith("test_generated_kernels") for item in tests) > 100


HARDWARE = """
import pytest

@pytest.mark.parametrize("n", [1, "of two words"])
def test_one(n):
    assert n == 1, "a long story"

def test_another():
    pytest.skip("no device")
"""


def test_each_test_is_an_item_of_its_own(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, path = tool("gpu_parts"), tmp_path / "test_of_a_device.py"
    path.write_text(HARDWARE)
    monkeypatch.setattr(parts, "HARDWARE", path)
    assert parts.hardware() == ["test_one[1]", "test_one[of two words]", "test_another"]
    code = "import json, pathlib, sys, gpu_parts; gpu_parts.HARDWARE = pathlib.Path(sys.argv[1])\n"
    code += "print(json.dumps([gpu_parts.run_tests(item, None) for item in sys.argv[2:]]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), *parts.hardware(), "test_nowhere"],
        cwd=BENCHMARKS, capture_output=True, text=True, check=True,
    )  # fmt: skip
    right, wrong, skipped, nowhere = json.loads(done.stdout.splitlines()[-1])
    assert right == {"status": 0, "outcomes": ["passed"]}
    assert wrong["error"].startswith("AssertionError: a long story") and "test_of_a_device.py:6" in wrong["trace"]
    assert "no device" in skipped["error"] and nowhere["error"] == "no test ran"
    path.write_text("import of_nowhere")
    with pytest.raises(RuntimeError, match="of_nowhere"):
        parts.hardware()


def test_items_that_want_the_device_for_themselves_come_behind_the_others(
    parts: Any, tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, told = [], []

    def measured(command: Any, items: Any, seconds: float, deadline: Any, jobs: int, tell: Any) -> Any:
        given.append((items, jobs))
        tell(rows := [{"item": item} for item in items])
        return rows

    monkeypatch.setattr(parts, "side_by_side", measured)
    made = tool("gpu_parts").Part(lambda: ["b", "all of it", "c"], None, None, 60, apart=("all",))
    monkeypatch.setitem(parts.PARTS, "tests", made)
    rows = parts.rows_of("tests", options(tmp_path, jobs=4), None, lambda some: told.append(len(some)))
    assert given == [(["b", "c"], 4), (["all of it"], 1)] and told == [2, 3]
    assert [row["item"] for row in rows] == ["b", "all of it", "c"]


def test_smoke_tests_are_models_that_other_providers_agree_on(tool: Any) -> None:
    smoke, error = tool("gpu_smoke"), tool("gpu_parts").largest_error
    for name, one in smoke.SMOKES.items():
        made, given = smoke.model(one), smoke.feeds(one, 0)
        session = onnxplug.InferenceSession(made.SerializeToString(), providers=[CPU])
        wanted = ReferenceEvaluator(made).run(None, given)
        assert error(session.run(None, given), wanted) <= smoke.LARGEST_ERROR[one.element], name
        assert np.ptp(np.asarray(wanted[0], np.float64)) > 0


def test_a_smoke_test_says_what_was_elsewhere_and_what_was_wrong(tool: Any) -> None:
    smoke, parts = tool("gpu_smoke"), tool("gpu_parts")
    name = "a product by cuBLAS"

    def on_cpu(data: bytes, provider: str, **options: object) -> Any:
        return onnxplug.InferenceSession(data, providers=[CPU])

    with pytest.raises(ValueError, match="not on the GPU: MatMul"):
        smoke.measure(name, on_cpu, parts.largest_error)

    def told(data: bytes, provider: str, **options: object) -> Any:
        logging.getLogger("onnxplug.cuda").info("cuDNN has no plan for this")
        made = on_cpu(data, provider)
        return SimpleNamespace(run=made.run, placement=dict)

    with pytest.raises(ValueError, match="cuDNN has no plan for this"):
        smoke.measure("attention by cuDNN", told, parts.largest_error)
    assert smoke.measure("attention", told, parts.largest_error) == {
        "error_of_largest": 0.0,
        "said": ["cuDNN has no plan for this"],
    }


def test_what_failed_is_named(tool: Any) -> None:
    root = ElementTree.fromstring(
        '<testsuites><testsuite><testcase name="a"/><testcase name="b"><failure message="1 is not 2">long</failure></testcase>'
        '<testcase name="c"><error message="no device"/></testcase></testsuite></testsuites>'
    )
    assert tool("gpu_parts").troubles(root) == ["b: 1 is not 2", "c: no device"]


def test_speed_is_judged_by_the_projects_aims(tool: Any) -> None:
    judge = tool("gpu_parts").fast_enough
    assert judge({"cuda_graph": False, "to_torch_eager": 0.9, "to_torch_compiled": 1.5})
    assert not judge({"cuda_graph": True, "to_torch_eager": 0.9, "to_torch_compiled": 1.5})


def test_no_device_is_an_outcome_of_its_own(
    tool: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "check", lambda: Unavailable("there is no GPU", "get one"))
    gpu = tool("gpu")
    assert gpu.main([]) == gpu.NO_DEVICE == 3
    assert "no device: there is no GPU; get one" in capsys.readouterr().err
