"""Results, placement and lifetimes of sessions on OpenVINO."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from openvino_models import CPU, NAME, model, open_session, owners, reasons

import onnxplug as ort
from onnxplug_ep_openvino import compiler

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((64, 32), dtype=np.float32)
NETWORK = """agraph (float[N, 64] x) => (float[N, 32] y) {
    product = MatMul(x, w)
    sum = Add(product, bias)
    y = Relu(sum)
}"""
SOURCE = model(NETWORK, w=WEIGHTS, bias=np.ones(32, np.float32))


def wanted(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHTS + 1, 0)


def test_a_region_is_one_model_of_openvinos_for_any_number_of_rows() -> None:
    with open_session(SOURCE) as session:
        assert owners(session) == {NAME} and len(session.explain().to_dict()["regions"]) == 1
        for rows in (1, 5, 0, 5):
            x = RNG.standard_normal((rows, 64), dtype=np.float32)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted(x), rtol=1e-4, atol=1e-4)


def test_a_convolution() -> None:
    text = """agraph (float[1, 3, 8, 8] x) => (float[1, 4, 4, 4] y) {
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, k)
        r = Relu(c)
        y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    }"""
    source = model(text, k=RNG.standard_normal((4, 3, 3, 3), dtype=np.float32))
    x = RNG.standard_normal((1, 3, 8, 8), dtype=np.float32)
    (want,) = ort.InferenceSession(source, providers=[CPU]).run(None, {"x": x})
    with open_session(source) as session:
        assert owners(session) == {NAME}
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)


def test_what_openvino_does_not_compute_as_onnx_says_goes_to_the_next_provider() -> None:
    text = """agraph (double[2] d, float[2] x, int32[2] i) => (double[2] a, float[2] b, bool[2] c) {
        a = Neg(d)
        p = Sin(x)
        b = Neg(p)
        c = Less(i, i)
    }"""
    with open_session(model(text)) as session:
        said = reasons(session)
        assert "tensor(double)" in said["Neg"] and "tensor(int32)" in said["Less"]
        got = session.run(None, {"d": np.ones(2), "x": np.ones(2, np.float32), "i": np.ones(2, np.int32)})
    np.testing.assert_allclose(got[1], -np.sin(np.ones(2, np.float32)), rtol=1e-6)


def test_indices_that_may_be_out_of_bounds_are_left_to_a_provider_that_says_so() -> None:
    text = "agraph (float[3, 2] x, int64[M] i) => (float[M, 2] y) { y = Gather(x, i) }"
    with open_session(model(text)) as session:
        assert owners(session) == {CPU} and "out of bounds" in reasons(session)["Gather"]
    fixed = model("agraph (float[3, 2] x) => (float[1, 2] y) { y = Gather(x, i) }", i=np.array([-1]))
    with open_session(fixed) as session:
        assert owners(session) == {NAME}


_POOLED = "(float[1, 1, H, W] y) { y = MaxPool<ceil_mode = 1, kernel_shape"
REFUSED = {
    "behind the keys of the past": (
        24,
        """agraph (float[1, 2, 3, 4] q, float[1, 2, 3, 4] k, float[1, 2, 5, 4] p)
        => (float[1, 2, 3, 4] y, float[A, B, C, D] m, float[E, F, G, H] n) { y, m, n = Attention<is_causal = 1>(q, k, k, , p, p) }""",
        {"q": (1, 2, 3, 4), "k": (1, 2, 3, 4), "p": (1, 2, 5, 4)},
    ),
    "begin behind the input": (
        19, f"agraph (float[1, 1, 2, 3] x) => {_POOLED} = [1, 1], strides = [2, 2]>(x) }}",
        {"x": (1, 1, 2, 3)},
    ),
    "a beta of 0": (
        17, "agraph (float[2, 3] x, float[2] c) => (float[2, 2] y) { y = Gemm<beta = 0.0, transB = 1>(x, x, c) }",
        {"x": (2, 3), "c": (2,)},
    ),
    "32 bits": (
        17, "agraph (float[3, 4] x, int64[1] a, int64[1] b) => (float[M, N] y) { y = Slice(x, a, b) }", {"x": (3, 4)},
    ),
}  # fmt: skip
TAKEN = [
    (19, f"agraph (float[1, 1, 3, 3] x) => {_POOLED} = [1, 1], strides = [2, 2]>(x) }}", (1, 1, 3, 3)),
    (19, f"agraph (float[1, 1, A, B] x) => {_POOLED} = [3, 3], strides = [2, 2], pads = [1, 1, 0, 0]>(x) }}", (1, 1, 6, 7)),
    (
        17, "agraph (float[3, 4] x) => (float[M, N] y) { a = Constant<value = int64[1] {1}>() "
        "b = Constant<value = int64[1] {9223372036854775807}>() y = Slice(x, a, b) }", (3, 4),
    ),
]  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_nodes_that_openvino_computes_otherwise(why: str) -> None:
    version, text, shapes = REFUSED[why]
    feeds = {name: RNG.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    if why == "32 bits":
        feeds |= {"a": np.array([1]), "b": np.array([2**63 - 1])}
    if "c" in feeds:
        feeds["c"][0] = np.inf
    with open_session(model(text, version)) as session:
        assert owners(session) == {CPU} and any(why in reason for reason in reasons(session).values())
        due = ort.InferenceSession(model(text, version), providers=["ReferenceExecutionProvider"]).run(None, feeds)
        for got, want in zip(session.run(None, feeds), due, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("version", "text", "shape"), TAKEN)
def test_nodes_that_are_near_those_and_right(version: int, text: str, shape: tuple[int, ...]) -> None:
    source, x = model(text, version), RNG.standard_normal(shape, dtype=np.float32)
    with open_session(source) as session:
        assert owners(session) == {NAME}
        (want,) = ort.InferenceSession(source, providers=[CPU]).run(None, {"x": x})
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)


def test_shapes_that_do_not_go_together_name_the_node() -> None:
    with open_session(model("agraph (float[N] x, float[M] z) => (float[K] y) { [sum] y = Add(x, z) }")) as session:
        with pytest.raises(Exception, match=f"'sum'.*provider {NAME}"):
            session.run(None, {"x": np.ones(3, np.float32), "z": np.ones(4, np.float32)})
        np.testing.assert_array_equal(
            session.run(None, {"x": np.ones(3, np.float32), "z": np.ones(1, np.float32)})[0], 2
        )


def test_threads_share_a_session() -> None:
    x = RNG.standard_normal((4, 64), dtype=np.float32)
    found: list[np.ndarray] = []
    with open_session(SOURCE) as session:

        def work() -> None:
            for _ in range(20):
                found.append(session.run(None, {"x": x})[0])

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 60 and all(np.array_equal(found[0], each) for each in found)


def test_a_run_is_told_to_stop() -> None:
    text = "agraph (float[1024, 1024] x) => (float[1024, 1024] y) {" + "".join(
        f"v{i + 1} = MatMul(v{i}, x) " for i in range(1000)
    )
    source = model(text.replace("(v0,", "(x,").replace("v1000 =", "y =") + "}")
    with open_session(source, intra_op_num_threads=1) as session:
        options = ort.RunOptions()
        timer = threading.Timer(0.2, lambda: setattr(options, "terminate", True))
        timer.start()
        with pytest.raises(Exception, match="terminate"):
            session.run(None, {"x": np.zeros((1024, 1024), np.float32)}, options)
        timer.join()


def test_compiled_regions_are_kept_and_a_damaged_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    read = compiler.read
    monkeypatch.setattr(compiler, "read", lambda region: made.append(region.name) or read(region))
    x = RNG.standard_normal((2, 64), dtype=np.float32)

    def run_once() -> None:
        with open_session(SOURCE, {"cache_dir": str(tmp_path / "kept")}) as session:
            assert owners(session) == {NAME}
            np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted(x), rtol=1e-4, atol=1e-4)

    run_once(), run_once()
    assert len(made) == 1
    (file,) = (tmp_path / "kept").glob("*.openvino")
    file.write_bytes(file.read_bytes()[:-1])
    run_once(), run_once()
    assert len(made) == 2


def test_a_model_holds_what_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", str(tmp_path / "made.onnx"))
    ort.InferenceSession(SOURCE, options, providers=[NAME, CPU])
    monkeypatch.setattr(compiler, "read", None)
    x = RNG.standard_normal((2, 64), dtype=np.float32)
    with open_session(str(tmp_path / "made.onnx")) as session:
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted(x), rtol=1e-4, atol=1e-4)


def test_a_damaged_region_of_a_model_is_refused(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.add_provider(NAME, {})
    compiled = ort.ModelCompiler(options, SOURCE, embed_compiled_data_into_model=True).compile_to_bytes()
    proto = onnx.load_from_string(compiled)
    (blob,) = [a for node in proto.graph.node for a in node.attribute if a.name == "ep_cache_context"]
    whole = blob.s
    for place in (len(whole) // 3, len(whole) - 100):
        blob.s = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        with pytest.raises(Exception, match="damaged"):
            open_session(proto.SerializeToString())


def test_a_region_is_compiled_once_for_all_runs_and_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    core = compiler.core

    class Counting:
        def compile_model(self, *given: Any) -> Any:
            made.append("compiled")
            return core().compile_model(*given)

    monkeypatch.setattr(compiler, "core", Counting)
    with open_session(SOURCE) as session:
        before = len(made)
        assert before
        binding = session.io_binding()
        for rows in (1, 5, 1, 0, 7, 5):
            x = RNG.standard_normal((rows, 64), dtype=np.float32)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted(x), rtol=1e-4, atol=1e-4)
            binding.bind_cpu_input("x", x)
            binding.bind_output("y")
            session.run_with_iobinding(binding)
            np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], wanted(x), rtol=1e-4, atol=1e-4)
        assert len(made) == before


def _in_a_fork(answer: multiprocessing.SimpleQueue) -> None:  # type: ignore[type-arg]
    x = np.ones((2, 64), np.float32)
    with open_session(SOURCE) as session:
        answer.put((owners(session), bool(np.allclose(session.run(None, {"x": x})[0], wanted(x), rtol=1e-4))))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_of_a_process_that_had_openvino_does_without() -> None:
    with open_session(SOURCE) as session:
        session.run(None, {"x": np.ones((2, 64), np.float32)})
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    child = context.Process(target=_in_a_fork, args=(answer,))
    child.start()
    child.join(60)
    assert answer.get() == ({CPU}, True)
