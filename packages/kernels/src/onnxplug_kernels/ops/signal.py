"""Fourier transforms and the windows that go with them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import numpy_dtype
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import FAIL, Refusal, require_axis

REMEMBERED, SMALL = 8, 1 << 16
"""How many windows and mel matrices are kept for when they are asked for again, as in every run, and elements of the largest."""


@op("DFT", 17, host_inputs=(1,))
def dft_17(xp: Any, x: Any, dft_length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Any:
    """Discrete Fourier transform along ``axis`` of (..., 1) real or (..., 2) complex numbers."""
    return _dft(xp, x, dft_length, axis, inverse, onesided)


@op("DFT", 20, host_inputs=(1, 2))
def dft(xp: Any, x: Any, dft_length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0) -> Any:
    """Discrete Fourier transform along ``axis`` of (..., 1) real or (..., 2) complex numbers."""
    return _dft(xp, x, dft_length, -2 if axis is None else _integer(axis), inverse, onesided)


def _dft(xp: Any, x: Any, dft_length: Any, axis: int, inverse: int, onesided: int) -> Any:
    axis = require_axis(axis, x.ndim)
    if axis == x.ndim - 1:
        raise ValueError("DFT along the last axis, which holds the real and imaginary parts")
    _check_parts(x)
    if onesided and not inverse and x.shape[-1] == 2:
        raise ValueError("a one-sided DFT is that of real numbers")
    if inverse and onesided and x.shape[-1] == 1:
        raise ValueError("the inverse of a one-sided DFT is that of complex numbers")
    if dft_length is not None:
        length = _integer(dft_length)
    else:
        length = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    if length < 1:
        raise ValueError(f"dft_length {length} must be greater than zero")
    values = widen(xp, x)
    if inverse:
        spectrum = _complex(xp, values)
        if onesided:
            return narrow(xp, xp.expand_dims(xp.fft.irfft(spectrum, n=length, axis=axis), axis=-1), x.dtype)
        return narrow(xp, _pairs(xp, xp.fft.ifft(spectrum, n=length, axis=axis)), x.dtype)
    return narrow(xp, _transform(xp, values, length, axis, bool(onesided)), x.dtype)


def _check_parts(x: Any) -> None:
    if x.shape[-1] not in (1, 2):
        raise ValueError(f"the last axis of {tuple(x.shape)} holds a real part, or a real and an imaginary one")


def _transform(xp: Any, values: Any, length: int, axis: int, onesided: bool) -> Any:
    """The forward transform of (..., 1 or 2), as (..., 2)."""
    if onesided and values.shape[-1] == 1:
        return _pairs(xp, xp.fft.rfft(values[..., 0], n=length, axis=axis))
    spectrum = xp.fft.fft(_complex(xp, values), n=length, axis=axis)
    if onesided:
        spectrum = spectrum[(*(slice(None),) * axis, slice(length // 2 + 1))]
    return _pairs(xp, spectrum)


def _complex(xp: Any, pairs: Any) -> Any:
    dtype = xp.complex128 if pairs.dtype == xp.float64 else xp.complex64
    real = xp.astype(pairs[..., 0], dtype)
    return real if pairs.shape[-1] == 1 else real + xp.astype(pairs[..., 1], dtype) * 1j


def _pairs(xp: Any, values: Any) -> Any:
    return xp.stack([xp.real(values), xp.imag(values)], axis=-1)


def _integer(value: Any) -> int:
    return int(value.reshape(-1)[0])


@op("STFT", 17, host_inputs=(1, 3))
def stft(
    xp: Any, signal: Any, frame_step: Any, window: Any = None, frame_length: Any = None, *, onesided: int = 1
) -> Any:
    """Fourier transforms of frames of (batch, length, 1 or 2), each multiplied by ``window``."""
    if frame_length is not None:
        length = _integer(frame_length)
    else:
        length = signal.shape[1] if window is None else window.shape[0]
    step = _integer(frame_step)
    if signal.ndim not in (2, 3) or step < 1 or not 0 < length <= signal.shape[1]:
        raise ValueError(f"no frames of {length} elements at each {step} of a signal {tuple(signal.shape)}")
    if signal.ndim == 3:
        _check_parts(signal)
    if window is not None and math.prod(window.shape) != length:
        raise ValueError(f"window {tuple(window.shape)} does not go with frames of {length} elements")
    frames = (signal.shape[1] - length) // step + 1
    values = widen(xp, signal)
    if values.ndim == 2:
        values = xp.expand_dims(values, axis=-1)
    places = np.arange(frames)[:, None] * step + np.arange(length)
    cut = xp.take(values, xp.asarray(places.reshape(-1)), axis=1)
    cut = xp.reshape(cut, (values.shape[0], frames, length, values.shape[2]))
    if window is not None:
        cut = cut * xp.reshape(widen(xp, window), (length, 1))
    return narrow(xp, _transform(xp, cut, length, 2, bool(onesided)), signal.dtype)


@op("HannWindow", 17, host_inputs=(0,))
def hann_window(xp: Any, size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    """0.5 - 0.5 cos(2 pi n / N)."""
    return _window(xp, size, (0.5, 0.5), output_datatype, periodic)


@op("HammingWindow", 17, host_inputs=(0,))
def hamming_window(xp: Any, size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    """25/46 - 21/46 cos(2 pi n / N)."""
    return _window(xp, size, (25 / 46, 21 / 46), output_datatype, periodic)


@op("BlackmanWindow", 17, host_inputs=(0,))
def blackman_window(xp: Any, size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""
    return _window(xp, size, (0.42, 0.5, 0.08), output_datatype, periodic)


def _window(xp: Any, size: Any, coefficients: Sequence[float], output_datatype: int, periodic: int) -> Any:
    """An alternating sum of cosines over ``size`` points; N is ``size``, or one less for a symmetric window."""
    count = _integer(size)
    if count < 0:
        raise ValueError(f"a window has no {count} elements")
    make = _remembered_cosines if count <= SMALL else _cosines
    return xp.asarray(make(count, tuple(coefficients), output_datatype, bool(periodic)), copy=True)


def _cosines(count: int, coefficients: tuple[float, ...], output_datatype: int, periodic: bool) -> np.ndarray:
    dtype = numpy_dtype(output_datatype)
    period = count if periodic else count - 1
    if period == 0 and count == 1:
        return np.ones(1, dtype)
    phase = 2 * math.pi * np.arange(count) / max(1, period)
    total = sum((-1) ** k * c * np.cos(k * phase) for k, c in enumerate(coefficients))
    if dtype.kind in "iu":
        total = np.round(total, 9)  # an error in the last bit must not truncate a 1 to 0
    return np.asarray(total).astype(dtype)


_remembered_cosines = functools.lru_cache(REMEMBERED)(_cosines)


@op("MelWeightMatrix", 17, host_inputs=(0, 1, 2, 3, 4))
def mel_weight_matrix(
    xp: Any,
    num_mel_bins: Any,
    dft_length: Any,
    sample_rate: Any,
    lower_edge_hertz: Any,
    upper_edge_hertz: Any,
    *,
    output_datatype: int = 1,
) -> Any:
    """(dft_length // 2 + 1, num_mel_bins) weights: triangles of height 1, evenly spaced on the mel scale."""
    bins, length, rate = _integer(num_mel_bins), _integer(dft_length), _integer(sample_rate)
    edges = tuple(float(edge.reshape(-1)[0]) for edge in (lower_edge_hertz, upper_edge_hertz))
    if bins < 0 or rate < 1 or not all(0 <= (length + 1) * edge / rate < length // 2 + 1 for edge in edges):
        raise Refusal(f"no {bins} bins from {edges[0]} to {edges[1]} hertz in {length} samples at {rate} hertz", FAIL)
    make = _remembered_triangles if bins * length <= 2 * SMALL else _triangles
    return xp.asarray(make(bins, length, rate, edges, output_datatype), copy=True)


def _triangles(
    bins: int, length: int, sample_rate: int, hertz_edges: tuple[float, ...], output_datatype: int
) -> np.ndarray:
    low, high = (2595 * math.log10(1 + edge / 700) for edge in hertz_edges)
    mels = low + np.arange(bins + 2) * ((high - low) / (bins + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = np.floor((length + 1) * hertz / sample_rate).astype(np.int64)
    left, center, right = edges[:-2], edges[1:-1], edges[2:]
    row = np.arange(length // 2 + 1)[:, None]
    rising = np.where((left <= row) & (row <= center), (row - left) / np.maximum(1, center - left), 0.0)
    rising = np.where((row == center) & (left == center), 1.0, rising)
    falling = (right - row) / np.maximum(1, right - center)
    weights = np.where((center <= row) & (row < right), falling, rising)
    return weights.astype(numpy_dtype(output_datatype))


_remembered_triangles = functools.lru_cache(REMEMBERED)(_triangles)
