"""Fourier transforms and windows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import always, oracle

COEFFICIENTS = {
    "HannWindow": (Fraction(1, 2), Fraction(1, 2)),
    "HammingWindow": (Fraction(25, 46), Fraction(21, 46)),
    "BlackmanWindow": (Fraction(42, 100), Fraction(1, 2), Fraction(8, 100)),
}


@oracle(
    *COEFFICIENTS,
    sentence="the window's sum of cosines, rounded once to output_datatype; onnx.reference rounds in between",
    wrong=always,
)
def window(case: Case, x: list[Any]) -> Any:
    size = int(x[0])
    period = size if case.attributes.get("periodic", 1) else size - 1
    angle = 2 * np.pi * np.arange(size) / period
    terms = [float((-1) ** k * c) * np.cos(k * angle) for k, c in enumerate(COEFFICIENTS[case.key[1]])]
    return np.round(sum(terms), 12)


@oracle(
    "STFT",
    sentence="one-sided when onesided is 1, its default; frames = floor((signal_length - frame_length) / frame_step) + 1",
    wrong=always,
)
def stft(case: Case, x: list[Any]) -> Any:
    signal, step, window_, length = [*x, None, None][:4]
    size = int(length) if length is not None else len(window_)
    values = signal[..., 0] + (1j * signal[..., 1] if signal.shape[-1] == 2 else 0)
    starts = range(0, values.shape[1] - size + 1, int(step))
    frames = np.stack([values[:, s : s + size] * (1 if window_ is None else window_) for s in starts], 1)
    spectrum = np.fft.fft(frames)
    if case.attributes.get("onesided", 1):
        spectrum = spectrum[..., : size // 2 + 1]
    return np.stack([spectrum.real, spectrum.imag], -1)
