"""Products of generated code: shapes, layouts of the operands, weights, what is fused behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native, session
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnxplug
from onnxplug_ep_cpu.codegen.compiler import Compiler
from onnxplug_ep_cpu.codegen.kernels.gemm import Gemm
from onnxplug_ep_cpu.codegen.kernels.tile import FEW
from onnxplug_ep_cpu.codegen.kernels.tile_rows import ANY, parts, rests
from onnxplug_ep_cpu.codegen.lower.tiles import full_tiles
from onnxplug_ep_cpu.codegen.program import Program
from onnxplug_ep_cpu.codegen.target import host_target

node = helper.make_node
SIZE = st.integers(1, 40)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def close(got: np.ndarray, want: np.ndarray) -> None:
    """Rounding of a sum of k products of normal numbers grows like its root; the results are of that size too."""
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-6 * max(1.0, float(np.abs(want).max(initial=0.0))))


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(x.astype(np.float64) @ w.astype(np.float64))


@given(SIZE, st.integers(1, 300), st.integers(1, 100), st.booleans())
def test_matrices(m: int, k: int, n: int, constant: bool) -> None:
    x, w = normal(m, k), normal(k, n)
    feeds = {"x": x} if constant else {"x": x, "w": w}
    proto = model([node("MatMul", ["x", "w"], ["y"])], feeds, ["y"], {"w": w} if constant else {})
    close(run_native(proto, feeds)[0], product(x, w))


@pytest.mark.parametrize(
    ("m", "k", "n"), [(130, 3000, 50), (17, 2500, 33), (128, 1100, 768), (64, 5001, 16), (9, 7000, 24)]
)
def test_deep_products(m: int, k: int, n: int) -> None:
    """Sums that go in steps of k, and threads that do not change them."""
    x, w = normal(m, k), normal(k, n)
    proto = model(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])], {"x": x}, ["y"], {"w": w, "b": normal(n)}
    )
    (got,), (alone,) = (run_native(proto, {"x": x}, threads=threads) for threads in (3, 1))
    close(got, product(x, w) + normal(n))
    np.testing.assert_array_equal(got, alone)


@pytest.mark.parametrize("m", [8, 13, 16, 31, 64])
def test_few_passes_over_a_panel_bring_all_of_the_next_one_near(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the second-level cache, and more a part of it to the first."""
    found: list[tuple[Gemm, int]] = []
    call = Program.call

    def recorded(self: Program, kernel: Any, args: Any, *rest: Any, **more: Any) -> None:
        if isinstance(kernel, Gemm):
            whole, left = divmod(m, kernel.rows)
            found.append((kernel, min(args[9], whole) + (left > 0)))
        call(self, kernel, args, *rest, **more)

    monkeypatch.setattr(Program, "call", recorded)
    x, w = normal(m, 64), normal(64, 640)
    run_native(model([node("MatMul", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": w}), {"x": x}, threads=1)
    ((kernel, passes),) = found
    target = host_target()
    if passes <= FEW:
        assert passes * kernel.near * 64 >= 4 * kernel.unroll * kernel.vectors * target.lanes
    text = Compiler(target, None).text(kernel)
    assert ("i32 0, i32 2, i32 1" in text) == (1 < passes <= FEW)
    assert ("i32 0, i32 3, i32 1" in text) == (not 1 < passes <= FEW)


def test_subnormal_weights_are_zeros() -> None:
    """Training leaves such weights of channels that nobody needs, and processors take a hundred times as long for each."""
    x, w = normal(9, 40), normal(40, 24)
    w[:, :7] = w[:, :7] * np.float32(2.0**-135)
    w[::2] = w[::2] * np.float32(2.0**-140)
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": w})
    (got,) = run_native(proto, {"x": x})
    close(got, product(x, w))
    np.testing.assert_array_equal(got[:, :7], np.zeros((9, 7)))


@pytest.mark.parametrize("size", [2.0**-140, 2.0**-127, 2.0**-120])
def test_weights_that_are_all_tiny_are_what_they_are(size: float) -> None:
    x, w, kernel = normal(9, 40) * np.float32(2.0**100), normal(40, 24), normal(8, 5, 3, 3)
    w, kernel = w * np.float32(size), kernel * np.float32(size)
    image = normal(1, 5, 9, 9) * np.float32(2.0**100)
    for op_type, data, weights in (("MatMul", x, w), ("Conv", image, kernel), ("ConvTranspose", image, kernel[:5])):
        proto = model([node(op_type, ["x", "w"], ["y"])], {"x": data}, ["y"], {"w": weights})
        (got,) = run_native(proto, {"x": data})
        larger = model([node(op_type, ["x", "w"], ["y"])], {"x": data}, ["y"], {"w": weights * np.float32(2.0**20)})
        (wanted,) = run_native(larger, {"x": data * np.float32(2.0**-20)})
        assert np.abs(got).max() > 0
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6 * float(np.abs(wanted).max()))


@given(st.integers(3, 10), st.integers(1, 4), st.integers(2, 200))
def test_rows_are_tiles_and_a_rest_that_has_tiles(rows: int, vectors: int, m: int) -> None:
    full = full_tiles(rows, vectors)(m, 0)
    left = m - full * rows
    assert full >= 0 and left >= 0
    assert left == 0 or (sum(parts(left, rows)) == left and set(parts(left, rows)) <= set(rests(rows)))


@pytest.mark.parametrize("target", [None, "generic"])
@pytest.mark.parametrize(("k", "n"), [(70, 130), (33, 7), (20, 40), (2600, 70)])
def test_one_session_multiplies_any_number_of_rows(
    target: str | None, k: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kernels at most beside the one for a single row: of all of k at once and of k in steps."""
    if target is not None:
        monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    kernels: set[Gemm] = set()
    call = Program.call
    monkeypatch.setattr(
        Program, "call", lambda self, kernel, *rest, **more: (kernels.add(kernel), call(self, kernel, *rest, **more))[1]
    )
    w = normal(k, n)
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]), node("Softsign", ["q"], ["s"])]
    nodes += [node("Add", ["s", "q"], ["y"])]
    made = session(model(nodes, {"x": w}, ["y"], {"w": w, "b": normal(n)}, symbolic=True))
    for m in (*range(1, 28), 41, 64, 65, 100, 7, 1):
        x = normal(m, k)
        want = product(x, w) + normal(n)
        close(made.run(None, {"x": x})[0], want + want / (1 + np.abs(want)))
    products = [kernel for kernel in kernels if isinstance(kernel, Gemm)]
    assert len([kernel for kernel in products if kernel.rest == ANY]) == len(products) - 1 <= 2


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((7,), (7,)), ((7,), (7, 5)), ((6, 7), (7,)), ((3, 6, 7), (7,)), ((7,), (3, 7, 5)), ((2, 1, 6, 7), (3, 7, 5)),
        ((2, 3, 6, 7), (7, 9)), ((6, 7), (3, 7, 20)), ((5, 1, 3, 2, 6, 7), (4, 1, 2, 7, 12)), ((0, 7), (7, 5)), ((6, 0), (0, 9)),
        ((0, 6, 7), (0, 7, 5)), ((4, 7), (7, 0)), ((1, 700), (700, 300)), ((2, 1, 64), (2, 64, 33)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("constant", [None, "a", "b"])
def test_ranks_and_batches(a: tuple[int, ...], b: tuple[int, ...], constant: str | None) -> None:
    both = {"a": normal(*a, seed=1), "b": normal(*b, seed=2)}
    feeds = {name: array for name, array in both.items() if name != constant}
    held = {name: array for name, array in both.items() if name == constant}
    proto = model([node("MatMul", ["a", "b"], ["y"])], feeds, ["y"], held)
    close(run_native(proto, feeds)[0], product(both["a"], both["b"]))


@given(SIZE, SIZE, SIZE, st.permutations(range(4)), st.permutations(range(4)))
def test_operands_of_any_layout(m: int, k: int, n: int, left: list[int], right: list[int]) -> None:
    shapes = {"a": (2, 3, m, k), "b": (2, 3, k, n)}
    orders = {"a": left, "b": right}
    feeds = {name: normal(*np.array(shapes[name])[np.argsort(orders[name])]) for name in "ab"}
    nodes = [node("Transpose", [name], [f"{name}_"], perm=orders[name]) for name in "ab"]
    nodes.append(node("MatMul", ["a_", "b_"], ["y"]))
    (got,) = run_native(model(nodes, feeds, ["y"]), feeds)
    close(got, product(feeds["a"].transpose(left), feeds["b"].transpose(right)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 70), (70, 33)), ((5, 7), (7, 1)), ((7,), (7, 3)), ((4, 7), (7,)), ((9,), (9,)), ((2, 1, 3, 5), (4, 5, 2)),
        ((3, 0), (0, 2)), ((0, 3), (3, 2)), ((2, 6, 5), (2, 5, 40)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_integers(a: tuple[int, ...], b: tuple[int, ...], turned: bool, dtype: type) -> None:
    """They wrap; the last dimensions of an operand may be swapped."""
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    x, w = (rng.integers(limits.min, limits.max, shape).astype(dtype) for shape in (a, b))
    orders = [[*range(w.ndim - 2), *range(w.ndim)[-1:-3:-1]] if turned else list(range(w.ndim)) for w in (x, w)]
    nodes = [
        node("Transpose", ["x"], ["s"], perm=orders[0]), node("Transpose", ["w"], ["t"], perm=orders[1]),
        node("MatMul", ["s", "t"], ["y"]),
    ]  # fmt: skip
    feeds = {"x": x.transpose(orders[0]), "w": w.transpose(orders[1])}
    proto = model(nodes, feeds, ["y"], types={"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))})
    np.testing.assert_array_equal(run_native(proto, feeds)[0], x @ w, strict=True)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("bias", [None, (), (13,), (1, 13), (9, 1), (9, 13)])
def test_gemm(trans_a: int, trans_b: int, constant: bool, bias: tuple[int, ...] | None) -> None:
    x, w = normal(9, 21), normal(21, 13)
    given_ = {"x": x.T.copy() if trans_a else x, "w": w.T.copy() if trans_b else w}
    feeds = {"x": given_["x"]} if constant else dict(given_)
    names = ["x", "w"]
    want = 0.5 * product(x, w)
    if bias is not None:
        feeds["c"] = normal(*bias)
        names.append("c")
        want = want + 3.0 * feeds["c"]
    gemm = node("Gemm", names, ["y"], alpha=0.5, beta=3.0, transA=trans_a, transB=trans_b)
    close(run_native(model([gemm], feeds, ["y"], {"w": given_["w"]} if constant else {}), feeds)[0], want)


@pytest.mark.parametrize(
    "trans", [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0), (0, 0, 1, 0), (0, 1, 0, 1), (1, 1, 1, 1)]
)
def test_fused_matmul(trans: tuple[int, ...]) -> None:
    names = ("transA", "transB", "transBatchA", "transBatchB")
    x, w = normal(3, 6, 10), normal(3, 10, 12)

    def stored(matrix: np.ndarray, turned: int, moved: int) -> np.ndarray:
        matrix = matrix.swapaxes(1, 2) if turned else matrix
        return np.ascontiguousarray(np.moveaxis(matrix, 0, 1) if moved else matrix)

    feeds = {"x": stored(x, trans[0], trans[2]), "w": stored(w, trans[1], trans[3])}
    made = node(
        "FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft", alpha=0.25, **dict(zip(names, trans, strict=True))
    )
    close(run_native(model([made], feeds, ["y"]), feeds)[0], 0.25 * product(x, w))


def _gelu(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.asarray(x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))))


@pytest.mark.parametrize("first", [True, False])
def test_bias_activation_and_residual_are_part_of_the_product(first: bool) -> None:
    """x * f(x) reads the product twice and computes it once."""
    x, w, bias, residual = normal(2, 11, 32), normal(32, 40), normal(40), normal(2, 11, 40)
    nodes = [
        node("MatMul", ["x", "w"], ["p"]), node("Add", ["b", "p"] if first else ["p", "b"], ["t"]),
        node("Div", ["t", "root"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["f"]),
        node("Mul", ["t", "f"], ["g"]), node("Mul", ["g", "half"], ["h"]),
        node("Add", ["r", "h"] if first else ["h", "r"], ["y"]),
    ]  # fmt: skip
    constants = {"w": w, "b": bias, "root": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
    feeds = {"x": x, "r": residual}
    with bound_kernels() as kernels:
        (got,) = run_native(model(nodes, feeds, ["y"], constants), feeds)
    assert ["Gemm"] in kernels  # others pack w
    np.testing.assert_allclose(got, _gelu(product(x, w) + bias) + residual, rtol=1e-4, atol=1e-5)


def bound_kernels() -> Any:
    """The kernels of every region bound inside the context, by name."""
    from contextlib import contextmanager
    from unittest import mock

    from onnxplug_ep_cpu.codegen.program import Form

    @contextmanager
    def record() -> Any:
        found: list[list[str]] = []
        make = Form.__init__

        def init(self: Any, program: Any, *args: Any) -> None:
            make(self, program, *args)
            found.append([type(call.kernel).__name__ for call in program.calls])

        with mock.patch.object(Form, "__init__", init):
            yield found

    return record()


@pytest.mark.parametrize(
    ("left", "right"), [((2, 40, 9), (2, 9, 70)), ((40, 9), (2, 9, 70)), ((2, 1, 9), (9, 70)), ((9,), (9, 100))]
)
def test_computed_operands_whose_rows_are_far_apart(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """For many rows the right one is packed first, for one row it is read by wide tiles; it is a part of another tensor."""
    x, w = normal(*left), normal(*right[:-1], right[-1] + 5, seed=1)
    held = {"from": np.array([3]), "to": np.array([3 + right[-1]]), "axis": np.array([-1])}
    nodes = [
        node("Slice", ["w", "from", "to", "axis"], ["s"]),
        node("MatMul", ["x", "s"], ["p"]),
        node("Neg", ["p"], ["y"]),
    ]
    (got,) = run_native(model(nodes, {"x": x, "w": w}, ["y"], held), {"x": x, "w": w})
    close(got, -(x.astype(np.float64) @ w[..., 3 : 3 + right[-1]]))


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 10), (33, 7, 8), (1, 30, 5), (12, 1, 1), (40, 65, 15), (5, 6, 3)])
def test_computed_operands_of_few_columns(m: int, k: int, n: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrower than a vector, between columns that are no numbers, which none of its lanes may let through."""
    if target:
        monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    x, around = normal(3, 2, m, k), np.full((3, 2, k, n + 20), np.nan, np.float32)
    around[..., 4 : 4 + n] = w = normal(3, 2, k, n, seed=1)
    nodes = [node("Slice", ["around", "from", "to", "axis"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    constants = {"from": np.array([4]), "to": np.array([4 + n]), "axis": np.array([3])}
    feeds = {"x": x, "around": around}
    (got,) = run_native(model(nodes, feeds, ["y"], constants), feeds)
    close(got, product(x, w))


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 11, 12])
@pytest.mark.parametrize("constant", [False, True])
def test_deep_products_of_few_columns(n: int, constant: bool, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors lie along k; the rest of a row is none of them. Batches, a bias and a residual go with them."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    for m, k in ((1, 64), (19, 150), (64, 95)):
        x, w, r = normal(2, 3, m, k), normal(k, n), normal(2, 3, m, n)
        feeds = {"x": x, "r": r} if constant else {"x": x, "r": r, "w": w}
        nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]), node("Add", ["q", "r"], ["y"])]
        held = {"b": normal(n)} | ({"w": w} if constant else {})
        (got,) = run_native(model(nodes, feeds, ["y"], held), feeds)
        close(got, product(x, w) + normal(n) + r)
        batch = normal(2, 3, k, n, seed=1)
        (got,) = run_native(
            model([node("MatMul", ["x", "w"], ["y"])], {"x": x, "w": batch}, ["y"]), {"x": x, "w": batch}
        )
        close(got, product(x, batch))
        nodes = [node("Gemm", ["x", "w"], ["y"], transB=1, transA=1)]
        left, right = np.ascontiguousarray(x[0, 0].T), np.ascontiguousarray(batch[0, 0].T)
        feeds, held = ({"x": left}, {"w": right}) if constant else ({"x": left, "w": right}, {})
        close(run_native(model(nodes, feeds, ["y"], held), feeds)[0], product(x[0, 0], batch[0, 0]))


def test_not_a_number_goes_through() -> None:
    x, w = normal(3, 16), normal(16, 20)
    x[1, 3] = np.nan
    w[2, 5] = np.inf
    (got,) = run_native(model([node("MatMul", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": w}), {"x": x})
    assert np.isnan(got[1]).all()
    assert np.isinf(got[0, 5]) and np.isfinite(got[0, :5]).all()


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    "equation",
    [
        "ij,jk->ik", "ij,jk", "ij,jk->ki", "ibh,hnd->ibnd", "ibnd,jbnd->bnij", "bnij,jbnd->ibnd", "bhwc,hkc->bhwk", "bhwc,wkc->bhwk",
        "ibnd,hnd->ibh", "i,j->ij", "i,i->", "...ij,...jk->...ik", "bi,bi->bi", "abc,cba->b",
    ],
)  # fmt: skip
def test_einsum(equation: str, constant: bool) -> None:
    sizes = dict(zip("abcdhijknw", (2, 3, 19, 8, 5, 6, 4, 33, 3, 2), strict=True))
    terms = equation.partition("->")[0].replace("...", "ab").split(",")
    x, w = (normal(*(sizes[label] for label in term), seed=i) for i, term in enumerate(terms))
    feeds = {"x": x} if constant else {"x": x, "w": w}
    nodes = [node("Einsum", ["x", "w"], ["p"], equation=equation), node("Neg", ["p"], ["y"])]
    (got,) = run_native(model(nodes, feeds, ["y"], {"w": w} if constant else {}), feeds)
    close(got, -np.einsum(equation, x.astype(np.float64), w.astype(np.float64)))


@pytest.mark.parametrize("equation", ["nhwbcd->nchbwd", "...ij->...ji", "ba", "ab->ab"])
def test_einsum_of_one_operand_turns_it(equation: str) -> None:
    x = normal(*range(2, 2 + len(equation.partition("->")[0].replace("...", "ab"))))
    nodes = [node("Einsum", ["x"], ["p"], equation=equation), node("Neg", ["p"], ["y"])]
    np.testing.assert_array_equal(run_native(model(nodes, {"x": x}, ["y"]), {"x": x})[0], -np.einsum(equation, x))


@pytest.mark.parametrize(
    "equation",
    [
        "ii,ij->ij", "ij,jk->k", "ij->j", "ii->i", "ij->", "ij,jk,kl->il", "ij,ij->i", "ij,ij->", "ij,j->i", "kij,ki->kj",
        "k,kij->kji", "kii,jk->kj", "bi,bj,bk->bijk", "bijk,bi,jk->bk", "ij,kl->il",
    ],
)  # fmt: skip
def test_einsum_of_other_forms(equation: str) -> None:
    """Diagonals, sums over one operand, dot products, products of vectors, any number of operands."""
    terms = equation.partition("->")[0].split(",")
    feeds = {f"x{i}": normal(*[19] * len(term), seed=i) for i, term in enumerate(terms)}
    (got,) = run_native(model([node("Einsum", list(feeds), ["y"], equation=equation)], feeds, ["y"]), feeds)
    close(got, np.einsum(equation, *(x.astype(np.float64) for x in feeds.values())))


def test_einsum_of_a_part_of_a_concatenation() -> None:
    feeds = {"x": normal(3, 9, 7), "w": normal(3, 7, 20), "z": normal(3, 9, 5)}
    nodes = [node("Einsum", ["x", "w"], ["e"], equation="bij,bjk->bik"), node("Concat", ["e", "z"], ["y"], axis=2)]
    (got,) = run_native(model(nodes, feeds, ["y"]), feeds)
    close(got, np.concatenate([feeds["x"].astype(np.float64) @ feeds["w"], feeds["z"]], 2))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
@pytest.mark.parametrize("equation", ["i,j->ij", "blq,bhlk->bhlqk", "i,ij,kj->jki", "ii,ji->ij"])
def test_einsum_that_sums_nothing_is_of_any_numbers(equation: str, dtype: type) -> None:
    """Masks of integers and angles of float64 are outer products; numbers that float32 would round stay as they are."""
    terms = equation.partition("->")[0].split(",")
    random = np.random.default_rng(5)
    feeds = {f"x{i}": (random.integers(-9, 9, [7] * len(t)) + 2**20 + 1).astype(dtype) for i, t in enumerate(terms)}
    types = {"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}
    nodes = [node("Einsum", list(feeds), ["y"], equation=equation)]
    (got,) = run_native(model(nodes, feeds, ["y"], types=types), feeds)
    np.testing.assert_array_equal(got, np.einsum(equation, *feeds.values()), strict=True)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij->i", "ij,ij->"])
def test_einsum_that_sums_integers_is_left_to_numpy(equation: str) -> None:
    feeds = {f"x{i}": np.arange(49).reshape(7, 7) + 2**40 + i for i in range(equation.count(",") + 1)}
    nodes = [node("Einsum", list(feeds), ["y"], equation=equation)]
    made = session(model(nodes, feeds, ["y"], types={"y": TensorProto.INT64}))
    assert not made.explain().regions
    np.testing.assert_array_equal(made.run(None, feeds)[0], np.einsum(equation, *feeds.values()))


def test_einsum_with_a_diagonal_for_its_result_is_left_to_numpy() -> None:
    feeds = {"x": normal(3)}
    session = onnxplug.InferenceSession(
        model([node("Einsum", ["x"], ["y"], equation="i->ii")], feeds, ["y"]), providers=["CPUExecutionProvider"]
    )
    assert not session.explain().regions
