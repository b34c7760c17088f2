"""What only a GPU can show: results, limits, streams, recordings. Without one these tests are not run, and say why."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from cuda_conv_models import BODIES, model
from hardware_faults import *  # noqa: F403 - tests, of errors that only the device sees
from job_models import NARROW, Node, close, draw
from test_cuda_attention import WRITTEN_OUT, inputs, parsed
from test_cuda_attention import node as attention
from test_cuda_attention_contrib import every_contrib
from test_cuda_conv import image, sized
from test_cuda_generated import every_attention, every_kind
from test_cuda_grouped import decoder, every_grouped, step
from test_cuda_integers import equal, every_quantized
from test_cuda_qdq import BODIES as QDQ
from test_cuda_qdq import assert_neighbours, numbers
from test_cuda_qdq import model as quantized
from test_cuda_weights import model as dequantized
from test_cuda_weights import rows_of
from test_cuda_written import Counted, every_written

import onnxplug
from onnxplug.contract import Unavailable
from onnxplug.contract.errors import RuntimeException
from onnxplug_ep_cuda.device import check

ANSWER = check()
pytestmark = pytest.mark.skipif(isinstance(ANSWER, Unavailable), reason=f"no device: {getattr(ANSWER, 'reason', '')}")
CUDA = "CUDAExecutionProvider"
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[64, 256] x, float[256, 256] w) => (float[64, 256] z)'
    "{ a = MatMul(x, w) s = Sigmoid(a) p = Mul(a, s) z = Softmax(p) }"
).SerializeToString()


def session(**options: object) -> Any:
    strict = onnxplug.SessionOptions()
    strict.add_session_config_entry("session.strict_providers", "1")
    return onnxplug.InferenceSession(MODEL, strict, providers=[(CUDA, options)])


def feeds(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((64, 256)).astype(np.float32),
        "w": (rng.standard_normal((256, 256)) / 16).astype(np.float32),
    }


def wanted(given: dict[str, np.ndarray]) -> np.ndarray:
    a = given["x"].astype(np.float64) @ given["w"].astype(np.float64)
    p = a / (1 + np.exp(-a))
    y: np.ndarray = np.exp(p - p.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "options",
    [{}, {"do_copy_in_default_stream": 0}, {"arena_extend_strategy": "kSameAsRequested"}, {"enable_cuda_graph": 1}],
    ids=str,
)
def test_runs_give_the_right_results_every_time(options: dict[str, object]) -> None:
    made = session(use_tf32=0, **options)
    assert set(made.placement().values()) == {CUDA}
    for seed in range(5):  # with graphs: a plain run, a recorded one, replays
        given = feeds(seed)
        np.testing.assert_allclose(made.run(None, given)[0], wanted(given), rtol=1e-4, atol=1e-6)


ADDED = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[N, 64] a, float[N, 64] b, float[N, 64] c) => (float[N, 64] y) '
    "{ s = Softmax(a) t = Softmax(b) u = Softmax(c) v = Sub(s, t) y = Sub(v, u) }"
).SerializeToString()


@pytest.mark.parametrize("rows", [64, (1 << 16) + 1])  # through page-locked memory, and too large for that
@pytest.mark.parametrize("beside", [0, 1])
def test_inputs_of_one_size_arrive_each_in_its_place(beside: int, rows: int) -> None:
    """Of two runs, the second with memory that the first has used, and with arrays that are written over when a run has ended."""
    made = onnxplug.InferenceSession(ADDED, providers=[(CUDA, {"do_copy_in_default_stream": 1 - beside})])
    given = {name: np.empty((rows, 64), np.float32) for name in "abc"}
    for seed in range(2):
        for n, array in enumerate(given.values()):
            array[...] = np.random.default_rng(3 * seed + n).standard_normal(array.shape)
        weights = [np.exp(array.astype(np.float64)) for array in given.values()]
        a, b, c = (w / w.sum(-1, keepdims=True) for w in weights)
        (y,) = made.run(None, given)
        np.testing.assert_allclose(y, a - b - c, rtol=1e-4, atol=1e-6)


def test_the_applications_stream_is_used() -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    made, given = session(use_tf32=0, user_compute_stream=stream.ptr), feeds()
    np.testing.assert_allclose(made.run(None, given)[0], wanted(given), rtol=1e-4, atol=1e-6)


def test_a_copy_beside_computation_waits_for_those_who_read_what_lay_there() -> None:
    cupy = pytest.importorskip("cupy")
    from onnxplug_ep_cuda.queue import Queue
    from onnxplug_ep_cuda.transfer import CUDATransfer

    queue = Queue(0, None, copy_beside=True)
    transfer, size = CUDATransfer(queue), 1 << 22
    with queue.inside():
        x = cupy.ones(size, np.float32)
        y = cupy.sqrt(cupy.exp(cupy.sin(x)))
        transfer.copy(np.zeros(size, np.float32), x, queue.compute)
        z = x + 1
    queue.wait()
    assert abs(float(y.min()) - np.exp(np.sin(1) / 2)) < 1e-5 and float(y.min()) == float(y.max())
    assert float(z.min()) == float(z.max()) == 1


def test_values_stay_on_the_device() -> None:
    cupy = pytest.importorskip("cupy")
    made, given = session(use_tf32=0), feeds()
    binding = made.io_binding()
    for name, array in given.items():
        binding.bind_ortvalue_input(name, onnxplug.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    binding.bind_output("z", "cuda")
    made.run_with_iobinding(binding)
    (z,) = binding.get_outputs()
    assert z.device_name() == "cuda"
    np.testing.assert_allclose(cupy.asnumpy(cupy.from_dlpack(z)), wanted(given), rtol=1e-4, atol=1e-6)


def test_a_result_is_written_into_the_value_that_is_bound() -> None:
    made, given = session(use_tf32=0), feeds()
    binding = made.io_binding()
    for name, array in given.items():
        binding.bind_ortvalue_input(name, onnxplug.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    place = onnxplug.OrtValue.ortvalue_from_numpy(np.zeros((64, 256), np.float32), "cuda", 0)
    binding.bind_ortvalue_output("z", place)
    address = place.data_ptr()
    made.run_with_iobinding(binding)
    assert place.data_ptr() == address
    np.testing.assert_allclose(place.numpy(), wanted(given), rtol=1e-4, atol=1e-6)


def test_arrays_of_other_libraries_are_bound_where_they_are() -> None:
    """What writes them on the device's default stream comes before the run."""
    cupy = pytest.importorskip("cupy")
    made = session(use_tf32=0)
    arrays, z = (
        {name: cupy.zeros(array.shape, array.dtype) for name, array in feeds().items()},
        cupy.zeros((64, 256), "f"),
    )
    binding = made.io_binding()
    for name, array in arrays.items():
        binding.bind_input(name, "cuda", 0, np.float32, array.shape, array.data.ptr)
    binding.bind_output("z", "cuda", 0, np.float32, z.shape, z.data.ptr)
    for seed in range(3):
        given = feeds(seed)
        for name, array in arrays.items():
            array[...] = cupy.asarray(given[name])
        made.run_with_iobinding(binding)
        np.testing.assert_allclose(cupy.asnumpy(z), wanted(given), rtol=1e-4, atol=1e-6)


def test_tensors_are_shared_by_dlpack_both_ways() -> None:
    """A tensor keeps its memory when the value that it was made of is gone."""
    cupy = pytest.importorskip("cupy")
    made, shown = session(use_tf32=0), []
    for seed in range(3):
        binding = made.io_binding()
        for name, array in feeds(seed).items():
            binding.bind_ortvalue_input(name, onnxplug.OrtValue.from_dlpack(cupy.asarray(array)))
        binding.bind_output("z", "cuda")
        made.run_with_iobinding(binding)
        shown.append(cupy.from_dlpack(binding.get_outputs()[0]))
    del binding
    for seed, z in enumerate(shown):
        np.testing.assert_allclose(cupy.asnumpy(z), wanted(feeds(seed)), rtol=1e-4, atol=1e-6)


def test_each_thread_may_record_and_replay() -> None:
    made = session(use_tf32=0, enable_cuda_graph=1)
    for seed in range(4):  # a plain run, a recorded one, replays
        with ThreadPoolExecutor(1) as another:
            (got,) = another.submit(made.run, None, feeds(seed)).result()
        np.testing.assert_allclose(got, wanted(feeds(seed)), rtol=1e-4, atol=1e-6)


SIZED = {
    "chain": "a = Sigmoid(x) b = Mul(a, x) y = Softmax(b)",
    "product": "t = Transpose <perm = [0, 1, 3, 2]> (x) m = MatMul(x, t) y = ReduceSum <keepdims = 0> (m)",
    "convolution": "s = Constant <value = int64[4] {4, 4, 3, 3}> () w = ConstantOfShape <value = float[1] {0.0625}> (s) "
    "c = Conv <pads = [1, 1, 1, 1]> (x, w) y = Relu(c)",
    "shape": "s = Shape(x) z = ConstantOfShape <value = float[1] {2.0}> (s) y = Add(x, z)",
    "numbers": "s = Shape(x) f = Cast <to = 1> (s) m = ReduceMean <keepdims = 0> (f) y = Mul(x, m)",
    "table": 'r = Constant <value = float[4] {1.0, 1.0, 2.0, 1.5}> () y = Resize <mode = "cubic"> (x, , r)',
    "cumulated": "k = Constant <value = int64 {2}> () y = CumSum(x, k)",
}
"""Bodies over images of any number and size."""


@pytest.mark.parametrize("name", SIZED)
def test_shapes_that_change_are_recorded_when_they_come_again(name: str) -> None:
    data = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4, H, H] x) => (float[] y) {{ {SIZED[name]} }}'
    )
    del data.graph.output[0].type.tensor_type.shape.dim[:]
    data.graph.output[0].type.tensor_type.ClearField("shape")
    options = {"enable_cuda_graph": 1, "use_tf32": 0}
    made = onnxplug.InferenceSession(data.SerializeToString(), providers=[(CUDA, options), "CPUExecutionProvider"])
    plain = onnxplug.InferenceSession(data.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in ((1, 4, 8, 8), *[(2, 4, 12, 12)] * 4):
        given = {"x": np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)}
        np.testing.assert_allclose(made.run(None, given)[0], plain.run(None, given)[0], rtol=1e-4, atol=1e-4)


def test_what_a_recording_reads_of_the_hosts_stays_as_it_was() -> None:
    """A table that is sent anew with each replay, while other copies take the page-locked memory that comes free."""
    cupy = pytest.importorskip("cupy")
    data = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1, 2, 8, 8] x) => (float[1, 2, 16, 12] y) '
        '{ s = Constant <value = float[4] {1.0, 1.0, 2.0, 1.5}> () y = Resize <mode = "cubic"> (x, , s) }'
    ).SerializeToString()
    made = onnxplug.InferenceSession(data, providers=[(CUDA, {"enable_cuda_graph": 1})])
    plain = onnxplug.InferenceSession(data, providers=["CPUExecutionProvider"])
    for seed in range(5):
        given = {"x": np.random.default_rng(seed).standard_normal((1, 2, 8, 8)).astype(np.float32)}
        np.testing.assert_allclose(made.run(None, given)[0], plain.run(None, given)[0], rtol=1e-4, atol=1e-5)
        for size in (16, 64, 256, 1024):
            cupy.asarray(np.full(size, np.nan, np.float32))
        cupy.cuda.runtime.deviceSynchronize()


def test_a_session_that_is_closed_gives_its_memory_back() -> None:
    runtime = pytest.importorskip("cupy").cuda.runtime

    def left() -> int:
        made = session(enable_cuda_graph=1)
        for seed in range(3):
            made.run(None, feeds(seed))
        made.close()
        return int(runtime.memGetInfo()[0])

    left()  # without what libraries keep
    assert left() - left() < 1 << 20


def test_the_applications_allocator_gives_all_memory_and_gets_it_back() -> None:
    runtime = pytest.importorskip("cupy").cuda.runtime
    held, most = set[int](), 0

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    def alloc(nbytes: int) -> int:
        nonlocal most
        held.add(address := runtime.malloc(nbytes))
        most = max(most, len(held))
        return int(address)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def free(address: int) -> None:
        held.remove(address)
        runtime.free(address)

    places = [ctypes.cast(function, ctypes.c_void_p).value for function in (alloc, free)]
    made = session(use_tf32=0, gpu_external_alloc=places[0], gpu_external_free=places[1])
    for seed in range(2):
        np.testing.assert_allclose(made.run(None, feeds(seed))[0], wanted(feeds(seed)), rtol=1e-4, atol=1e-6)
    made.close()
    assert most > 1 and not held


def test_the_limit_is_an_error_with_figures() -> None:
    with pytest.raises(RuntimeException, match="65536"):
        session(gpu_mem_limit=65536).run(None, feeds())


def test_more_than_the_device_has_is_an_error_with_figures() -> None:
    with pytest.raises(RuntimeException, match="bytes free"):
        onnxplug.OrtValue.ortvalue_from_shape_and_type([1 << 42], np.float32, "cuda", 0)


def each(*makes: Callable[[], Iterable[Node]]) -> Any:
    """A test for each node: what is wrong with one hides no other."""
    return pytest.mark.parametrize(
        "node",
        [
            pytest.param(node, id=f"{make.__name__.removeprefix('every_')}-{number}-{node.op_type}")
            for make in makes
            for number, node in enumerate(make())
        ],
    )


TURNED = 64 * 2.0**10
"""Of rotated keys and queries of 16 bits, which are rounded before they are multiplied; the reference does not do that."""


def is_turned(node: Node) -> bool:
    """Whether a node's results are so."""
    x = node.inputs[0]
    return bool(node.attributes.get("do_rotary")) and x is not None and x.dtype.itemsize == 2


@each(every_kind, every_attention, every_contrib, every_grouped)
def test_generated_kernels_compute_what_they_do_in_opencl(node: Node) -> None:
    close(node, TURNED if is_turned(node) else 64, on_device(node))


@each(every_written)
def test_operators_with_kernels_alone_compute_what_they_do_in_opencl(node: Node) -> None:
    results = on_device(node)
    if isinstance(node, Counted):
        np.testing.assert_array_equal(node.kept(results), node.wanted()[0])
    else:
        close(node, 64, results)


def test_a_recording_that_is_released_is_made_anew() -> None:
    made = session(use_tf32=0, enable_cuda_graph=1)
    for seed in range(6):
        np.testing.assert_allclose(made.run(None, feeds(seed))[0], wanted(feeds(seed)), rtol=1e-4, atol=1e-6)
        if seed == 2:
            made.release_captured_graph()


@each(every_quantized)
def test_quantized_kernels_compute_what_they_do_in_opencl(node: Node) -> None:
    equal(node, 2.0**-9, on_device(node))  # integers are equal; floats of 16 bits are rounded once


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kernel", [0, 1])
def test_self_attention_with_its_projection(kernel: int, dtype: str) -> None:
    rng, kind = np.random.default_rng(5), NARROW[dtype]
    x, weights, bias = (draw(rng, shape, kind) for shape in ((2, 40, 128), (128, 384), (384,)))
    mask = np.ones((2, 40), np.int32)
    mask[1, 30:] = 0
    made = onnx.helper.make_node("Attention", ["x", "w", "b", "mask"], ["y"], domain="com.microsoft", num_heads=2)
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    values = [
        onnx.helper.make_tensor_value_info("x", code, x.shape),
        onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.INT32, mask.shape),
    ]
    constants = [onnx.numpy_helper.from_array(a, n) for n, a in (("w", weights / kind(11)), ("b", bias))]
    result = onnx.helper.make_tensor_value_info("y", code, x.shape)
    graph = onnx.helper.make_graph([made], "g", values, [result], constants)
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    data = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    given = {"x": x, "mask": mask}
    opened = onnxplug.InferenceSession(data, providers=[(CUDA, {"use_tf32": 0, "sdpa_kernel": kernel})])
    (wanted,) = onnxplug.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, given)
    (got,) = opened.run(None, given)
    # Roundings of the projection and of the weights to the type, at the magnitude of the result.
    unit = {"float32": 2e-5, "float16": 8e-3}[dtype]
    exact = wanted.astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), exact, atol=unit * np.abs(exact).max())


@pytest.mark.parametrize("kernel", [0, 1])
def test_attention_with_padding(kernel: int) -> None:
    rng = np.random.default_rng(6)
    given = {name: rng.standard_normal((2, 40, 128)).astype(np.float16) for name in "qkv"}
    given["mask"] = np.ones((2, 40), np.int32)
    given["mask"][1, 30:] = 0
    data = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> '
        "g (float16[2, 40, 128] q, float16[2, 40, 128] k, float16[2, 40, 128] v, int32[2, 40] mask) => (float16[2, 40, 128] y) "
        "{ y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, , mask) }"
    ).SerializeToString()
    (wanted,) = onnxplug.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, given)
    (got,) = onnxplug.InferenceSession(data, providers=[(CUDA, {"sdpa_kernel": kernel})]).run(None, given)
    # cuDNN rounds weights to float16 before they meet the values.
    np.testing.assert_allclose(got.astype(np.float64), wanted, atol=4e-3 * np.abs(wanted).max())


def on_device(node: Node) -> list[np.ndarray | None]:
    """The outputs of a node's generated kernels."""
    cupy = pytest.importorskip("cupy")
    from onnxplug_ep_cuda.codegen.bound import BoundJob
    from onnxplug_ep_cuda.faults import Faults

    job, call = node.job(), node.call()
    assert job is not None
    outputs = [None if spec is None else cupy.empty(spec.shape, spec.dtype) for spec in call.outputs]
    inputs = [None if x is None else cupy.asarray(x) for x in node.inputs]
    with Faults() as faults:
        BoundJob(job, faults)(*inputs, *outputs, cupy.empty(job.workspace, cupy.uint8))
    return [None if y is None else cupy.asnumpy(y) for y in outputs]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["int4", "uint2"])
def test_products_by_dequantized_weights(kind: str, dtype: str) -> None:
    made = dequantized(kind, (5, 9), axis=0, block_size=16, dtype=dtype)
    data = made.SerializeToString()
    opened = onnxplug.InferenceSession(data, providers=[(CUDA, {"use_tf32": 0})])
    assert set(opened.placement().values()) == {CUDA}
    reference = onnxplug.InferenceSession(data, providers=["CPUExecutionProvider"])
    for count in (1, 40):
        x = rows_of(made, count)
        (got,), (right,) = (s.run(None, {"x": x}) for s in (opened, reference))
        exact, unit = right.astype(np.float64), {"float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}[dtype]
        np.testing.assert_allclose(got.astype(np.float64), exact, rtol=0, atol=unit * np.abs(exact).max())


@pytest.mark.parametrize("options", [{}, {"enable_cudnn": 0}, {"cudnn_conv_algo_search": "HEURISTIC"}], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_regions_of_convolutions(name: str, options: dict[str, object]) -> None:
    x = image(sized(name, (2, 6, 9, 11)))
    data = model(name).SerializeToString()
    wanted = onnxplug.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    made = onnxplug.InferenceSession(data, providers=[(CUDA, {"use_tf32": 0, **options}), "CPUExecutionProvider"])
    assert set(made.placement().values()) == {CUDA}
    for got, right in zip(made.run(None, {"x": x}), wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5 * np.abs(right).max())


@pytest.mark.parametrize("kernel", [0, 1, 8])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_in_halves_by_cudnn_and_by_the_generated_kernel(causal: int, kernel: int) -> None:
    found = attention((2, 4, 2, 40, 40, 64, 64), dtype="float16", is_causal=causal)
    names = ["q", "k", "v"]
    made = onnx.helper.make_node("Attention", names, ["y"], **found.attributes)
    half, given = onnx.TensorProto.FLOAT16, [x for x in found.inputs if x is not None]
    values = [onnx.helper.make_tensor_value_info(n, half, x.shape) for n, x in zip(names, given, strict=True)]
    result = onnx.helper.make_tensor_value_info("y", half, [2, 4, 40, 64])
    graph = onnx.helper.make_graph([made], "g", values, [result])
    data = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 24)], ir_version=11)
    opened = onnxplug.InferenceSession(data.SerializeToString(), providers=[(CUDA, {"sdpa_kernel": kernel})])
    # cuDNN rounds weights to float16 before they meet the values.
    (wanted,) = found.wanted()
    got = opened.run(None, dict(zip(names, given, strict=True)))[0].astype(np.float64)
    np.testing.assert_allclose(got, wanted, atol=4e-3 * np.abs(wanted).max())


def test_a_decoders_steps_over_caches_on_the_device() -> None:
    data = decoder().SerializeToString()
    made = onnxplug.InferenceSession(data, providers=[(CUDA, {"use_tf32": 0}), "CPUExecutionProvider"])
    plain = onnxplug.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert {owner for node, owner in made.placement().items() if "Attention" in node or "Reduce" in node} == {CUDA}
    for rows, past in ((6, 0), (1, 9), (2, 300)):
        for got, wanted in zip(made.run(None, step(rows, past)), plain.run(None, step(rows, past)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", QDQ)
def test_products_between_quantized_tensors(name: str) -> None:
    made = quantized(QDQ[name])
    opened = onnxplug.InferenceSession(made.SerializeToString(), providers=[CUDA])
    given = numbers(made)
    (wanted,) = onnxplug.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)
    assert_neighbours(opened.run(None, given)[0], wanted)


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_attention_that_is_written_out_in_sessions(name: str) -> None:
    made = parsed(WRITTEN_OUT[name])
    opened = onnxplug.InferenceSession(made.SerializeToString(), providers=[CUDA, "CPUExecutionProvider"])
    assert set(opened.placement().values()) == {CUDA}
    given = inputs(made)
    (wanted,) = onnxplug.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)
    np.testing.assert_allclose(opened.run(None, given)[0], wanted, rtol=1e-4, atol=1e-5)
