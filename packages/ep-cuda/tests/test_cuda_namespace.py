"""What the provider puts in the place of CuPy's functions, over NumPy."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_cuda_products import cublas

from onnxplug_ep_cuda.fourier import KEPT, Transforms
from onnxplug_ep_cuda.kernels.products import factors
from onnxplug_ep_cuda.namespace import Namespace

XP = Namespace(np)
BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = np.array([[1.5, -0.0, np.nan], [2.5, -3.5, 1e-40]], BF16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype: type) -> None:
    rng = np.random.default_rng(0)
    edges = [(5, np.inf), (-5, np.inf), (5, -np.inf), (0.0, -3), (-0.0, 3), (np.inf, 2), (1, 0), (np.nan, 1), (6, -3)]
    a = np.array([*(rng.standard_normal(500) * 10.0 ** rng.integers(-5, 9, 500)), *(x for x, _ in edges)], dtype)
    b = np.array([*rng.standard_normal(500), *(y for _, y in edges)], dtype)
    with np.errstate(all="ignore"):
        got, wanted = XP.remainder(a, b), np.remainder(a, b)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got)[wanted == 0], np.signbit(wanted)[wanted == 0])
    np.testing.assert_array_equal(XP.remainder(np.array([7, -7]), np.array([3, 3])), [1, 2])


def test_choices_of_bfloat16_are_bits() -> None:
    mask = np.array([[True], [False]])
    got = XP.where(mask, HALVES, np.asarray(2.0, BF16))
    assert got.dtype == BF16 and got[0].tobytes() == HALVES[0].tobytes() and (got[1] == 2).all()
    assert XP.where(mask, HALVES, 0.0).dtype == BF16
    assert XP.tril(HALVES, k=0)[1].tolist()[:2] == [2.5, -3.5] and XP.triu(HALVES, k=1)[1, 2] == HALVES[1, 2]
    assert XP.round(HALVES).dtype == BF16 and XP.round(HALVES)[1].tolist() == [2.0, -4.0, 0.0]
    assert XP.argsort(np.array([3, 1, 2], BF16)).tolist() == [1, 2, 0]


def test_the_inverse_of_a_singular_matrix_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy gives what LAPACK's routines leave behind a pivot that is zero."""
    left = np.array([[[-2.0, 1.0], [1.5, -0.5]], [[-np.inf, np.inf], [2.0, 0.0]]], np.float32)
    monkeypatch.setattr(np.linalg, "inv", lambda x: left)
    got = XP.linalg.inv(np.array([[[1, 2], [3, 4]], [[1, 2], [2, 4]]], np.float32))
    assert got.dtype == np.float32 and (got[0] == left[0]).all() and np.isnan(got[1]).all()


SHAPES = [
    ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (1, 6, 4, 5)), ((4,), (4, 5)), ((3, 4), (4,)),
    ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((1, 3, 4), (7, 4, 5)), ((2, 3, 3, 4), (3, 4, 5)), ((4,), (4,)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_factors_of_any_layout_are_one_call(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for turned in range(4):
        a, b = (
            x if x.ndim < 2 or not turn else np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
            for x, turn in ((rng.standard_normal(left), turned & 1), (rng.standard_normal(right), turned & 2))
        )
        made = factors(np, a, b)
        assert made is not None
        x, y, call = made
        got = cublas(call, (np.ascontiguousarray(x), np.ascontiguousarray(y)))
        np.testing.assert_allclose(got, (a @ b).reshape(-1))
    assert factors(np, np.empty((0, 4)), np.empty((4, 5))) is None


class Recorder:
    """Says that it records, and keeps what is sent."""

    def __init__(self, recording: bool) -> None:
        self.recording, self.kept = recording, list[np.ndarray]()

    def sent(self, array: np.ndarray) -> np.ndarray:
        self.kept.append(array)
        return array.copy()


def test_host_arrays_and_joins_go_past_cupy_while_a_stream_is_recorded() -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise RuntimeError("the current stream is capturing, so H2D transfers are disallowed")

    plain = SimpleNamespace(**{**vars(np), "concat": refused, "stack": refused, "asarray": refused})
    recorder = Recorder(True)
    xp = Namespace(plain, recorder)
    assert xp.asarray(np.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]] and len(recorder.kept) == 1
    assert xp.asarray([1, 2], dtype=np.float32).dtype == np.float32 and recorder.kept[0].flags.c_contiguous
    parts = [np.ones((2, 1), np.float32), np.zeros((2, 0), np.float32), np.full((2, 2), 3.0)]
    joined = xp.concat(parts, axis=-1)
    assert joined.dtype == np.float64 and joined.tolist() == [[1, 3, 3], [1, 3, 3]]
    assert xp.stack([np.arange(2), np.arange(2, 4)], axis=-1).tolist() == [[0, 2], [1, 3]]
    with pytest.raises(RuntimeError, match="H2D"):
        Namespace(plain, Recorder(False)).asarray(np.zeros(3))
    with pytest.raises(RuntimeError, match="H2D"):
        xp.asarray(np.float32(1))  # a number is a kernel's argument


class Plan:
    """In the place of cuFFT's plan."""

    def __init__(self, n: int, kind: str, batch: int) -> None:
        self.of, self.entered = (n, kind, batch), 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: object) -> None:
        pass


def test_plans_of_transforms_are_the_sessions_in_memory_that_lasts() -> None:
    made, held, lasting = [], [], [0]

    def plan(n: int, kind: str, batch: int) -> Plan:
        assert lasting == [1]
        made.append(Plan(n, kind, batch))
        return made[-1]

    @contextmanager
    def lasts() -> Any:
        lasting[0] = 1
        yield
        lasting[0] = 0

    names = {f"CUFFT_{kind}": kind for kind in ("C2C", "Z2Z", "R2C", "D2Z", "C2R", "Z2D")}
    xp = SimpleNamespace(fft=np.fft, cuda=SimpleNamespace(cufft=SimpleNamespace(Plan1d=plan, **names)))
    transforms = Transforms(xp, lasts, held.append)
    x = np.random.default_rng(0).standard_normal((3, 8, 2)).astype(np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(transforms.rfft(x, n=6, axis=1), np.fft.rfft(x, n=6, axis=1))
    transforms.rfft(x.astype(np.float64), n=8, axis=1)
    transforms.fft(x.astype(np.complex64), n=8, axis=0)
    transforms.ifft(x.astype(np.complex128), n=8, axis=0)
    transforms.irfft(x.astype(np.complex64), n=8, axis=1)
    assert [each.of for each in made] == [(6, "R2C", 6), (8, "D2Z", 6), (8, "C2C", 16), (8, "Z2Z", 16), (8, "C2R", 6)]
    assert [each.entered for each in made] == [2, 1, 1, 1, 1] and len(held) == 6
    for n in range(1, 2 * KEPT):
        transforms.fft(x.astype(np.complex64), n=n, axis=1)
    assert len(transforms._plans) == KEPT
    transforms.close()
    assert not transforms._plans
