"""The plugin, its registry, and the thread limit."""

from __future__ import annotations

import inspect
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from cpu_nodes import Case

from onnxplug.contract import Available, KernelDef, SessionContext, parse_options
from onnxplug_ep_cpu import plugin
from onnxplug_ep_cpu.definitions import BLAS, _create_limited, _with
from onnxplug_ep_cpu.device import cores
from onnxplug_ep_cpu.kernels import forms
from onnxplug_ep_cpu.options import CPUOptions
from onnxplug_ep_cpu.registry import registry
from onnxplug_ep_cpu.threads import BlasThreads, LimitedKernel, blas_threads
from onnxplug_kernels.catalogue import catalogue


def context(threads: int, seed: int | None = None) -> SessionContext:
    return SessionContext(threads, {}, logging.getLogger("onnxplug"), seed)


def test_the_front_door() -> None:
    spec = plugin.onnxplug_provider()
    assert (spec.name, spec.device_kind) == ("CPUExecutionProvider", "cpu")
    assert isinstance(spec.check(), Available)
    assert [d.type for d in spec.devices()] == ["CPU"]


def test_the_front_door_imports_no_kernels() -> None:
    code = (
        "import sys; from onnxplug_ep_cpu import plugin; plugin.onnxplug_provider().check();"
        "print('onnxplug_kernels' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


TREE = """<ir_version: 9, opset_import: ["": 20, "ai.onnx.ml": 3]> g (float[n, 1] x) => (int64[n, 1] y) {
    t = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2],
        nodes_featureids = [0, 0, 0], nodes_values = [0.5, 0.0, 0.0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0], target_treeids = [0, 0], target_nodeids = [1, 2],
        target_ids = [0, 0], target_weights = [3.0, 7.0]> (x)
    y = Cast <to = 7> (t) }"""


def test_trees_and_casts_import_neither_masked_arrays_nor_types_they_do_not_have(tmp_path: Path) -> None:
    """Each takes longer to import than such a model to compute."""
    (tmp_path / "model.onnx").write_bytes(onnx.parser.parse_model(TREE).SerializeToString())
    code = (
        "import sys, numpy, onnxplug; session = onnxplug.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])\n"
        "print(session.run(None, {'x': numpy.array([[0], [1]], numpy.float32)})[0].ravel().tolist())\n"
        "print([name for name in ('numpy.ma', 'ml_dtypes') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model.onnx")]
    environment = {**os.environ, "ONNXPLUG_CACHE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[3, 7]\n[]\n"


def test_unknown_options_are_ignored() -> None:
    assert parse_options(CPUOptions, {"use_arena": "1"}) == CPUOptions()


def test_every_catalogue_entry_is_registered() -> None:
    assert len(registry()) == len(catalogue())
    assert registry() is registry()


def test_every_writing_form_belongs_to_an_entry() -> None:
    entries = list(registry())  # which imports every form
    assert forms._forms
    for (domain, op_type), found in forms._forms.items():
        own = [e for e in entries if (e.domain, e.op_type) == (domain, op_type)]
        for form in found:
            assert any(e.since <= form.since <= e.last for e in own), f"{op_type}-{form.since}"
            assert any(e.since <= form.until <= e.last for e in own), f"{op_type}-{form.until}"


def test_attributes_are_a_functions_own() -> None:
    """Two nodes of an operator have its function with different defaults; what a node leaves out keeps the operator's."""

    def scaled(xp: Any, x: Any, *, by: int = 2, plus: int = 1) -> Any:
        return xp.asarray(x * by + plus)

    def wrapped(*operands: Any, **attributes: Any) -> Any:
        return scaled(*operands, **attributes)

    assert _with(scaled, {"by": 3})(1) == 4 and _with(scaled, {"plus": 0})(1) == 2 and _with(scaled, {})(1) == 3
    assert _with(wrapped, {"by": 3})(1) == 4
    with pytest.raises(TypeError, match="unknown"):
        _with(scaled, {"unknown": 1})(1)


def definition(op_type: str, version: int) -> KernelDef:
    return next(d for d in registry() if d.op_type == op_type and d.since <= version <= d.last)


def test_marks() -> None:
    assert definition("Reshape", 21).alias == {0: 0}
    assert definition("Add", 14).inplace == {0: (0, 1)}
    assert definition("Conv", 22).inplace == {}


def test_a_factor_of_packed_weights_is_not_taken() -> None:
    """Only a format of four bits that is not known here has one."""
    assert not definition("MatMulPacked", 1).types["Tscale"]


def test_attributes_and_output_count_reach_the_function() -> None:
    halves = Case("Split", 18, np.arange(6.0), outputs=3, num_outputs=3).returned()
    assert [h.tolist() for h in halves] == [[0, 1], [2, 3], [4, 5]]


def test_trees_are_prepared_once() -> None:
    case = Case(
        "TreeEnsembleRegressor", 1, np.array([[0.0], [2.0]], np.float32), domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[1.0, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[5.0, 7.0], n_targets=1,
    )  # fmt: skip
    assert case.returned()[0].tolist() == [[5.0], [7.0]]


def test_a_seed_repeats_random_numbers() -> None:
    draws = []
    for _ in range(2):
        plugin.create(CPUOptions(), context(cores(), seed=7))
        draws.append(Case("RandomUniform", 22, shape=[5]).returned()[0])
    np.testing.assert_array_equal(draws[0], draws[1])


class Library:
    """A BLAS as threadpoolctl shows it."""

    def __init__(self) -> None:
        self.threads = 8

    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, threads: int) -> None:
        self.threads = threads


def test_limits_nest_and_end() -> None:
    library = Library()
    blas = BlasThreads([library])
    blas.limit(2)
    blas.limit(1)
    assert library.threads == 1
    blas.restore()
    assert library.threads == 1
    blas.restore()
    assert library.threads == 8


@pytest.mark.skipif(cores() < 2, reason="needs two processors to limit")
def test_kernels_that_compute_with_blas_are_limited() -> None:
    libraries = blas_threads()._libraries
    before = [library.get_num_threads() for library in libraries]
    seen = []

    def kernel(x: Any) -> Any:
        seen.append([library.get_num_threads() for library in libraries])
        return x

    assert LimitedKernel(kernel, 1)(3) == 3
    assert seen == [[1] * len(libraries)]
    assert [library.get_num_threads() for library in libraries] == before
    limited = {d.op_type for d in registry(1) if getattr(d.create, "func", None) is _create_limited}
    assert {"MatMul", "Conv", "Attention"} <= limited and not {"Add", "Softmax"} & limited


def test_it_is_known_which_kernels_compute_with_blas() -> None:
    """A family of the catalogue whose source speaks of products or decompositions is among those that are limited."""
    words = ("matmul(", "einsum(", "convolve", "linalg.")
    modules = {sys.modules[(entry.function or entry.prepare).__module__] for entry in catalogue()}
    speak = {m.__name__.rpartition(".")[2] for m in modules if any(w in inspect.getsource(m) for w in words)}
    assert speak <= BLAS
