"""The outputs of a run, described in numbers and written to an .npz file; pages for a browser."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxplug.cli.failure import FAILED, CliError


def describe(name: str, declared: str, value: Any) -> dict[str, Any]:
    """Name and type; of tensors dtype, shape and statistics over the finite elements, of sequences the parts."""
    told: dict[str, Any] = {"name": name, "type": declared}
    if isinstance(value, np.ndarray | np.generic):
        return told | _tensor(np.asarray(value))
    if isinstance(value, list):
        return told | {
            "length": len(value),
            "items": [describe(f"{name}.{i}", "", item) for i, item in enumerate(value)],
        }
    if isinstance(value, dict):
        return told | {"length": len(value)}
    return told | {"value": None if value is None else type(value).__name__}


def _tensor(array: np.ndarray) -> dict[str, Any]:
    told: dict[str, Any] = {
        "dtype": "string" if array.dtype == object else str(array.dtype),
        "shape": list(array.shape),
    }
    if array.dtype == object:
        return told | {"sample": [str(text) for text in array.ravel()[:3]]}
    if array.dtype.kind == "c":
        return told | {"non_finite": int(array.size - np.isfinite(array).sum())}
    if array.dtype.kind in "iub" and array.size:
        return told | {"min": int(array.min()), "mean": float(array.mean()), "max": int(array.max()), "non_finite": 0}
    numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    statistics = {key: float(getattr(finite, key)()) if finite.size else None for key in ("min", "mean", "max")}
    return told | statistics | {"non_finite": int(array.size - finite.size)}


def save(path: str, names: Sequence[str], values: Sequence[Any]) -> None:
    """Write tensors under their names, elements of sequences as ``name.0``, ``name.1``; CliError where that fails."""
    arrays = [pair for name, value in zip(names, values, strict=True) for pair in _arrays(name, value)]
    try:
        with zipfile.ZipFile(
            path, "w", zipfile.ZIP_STORED, allowZip64=True
        ) as archive:  # np.savez cannot take any name
            for name, array in arrays:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    except OSError as error:
        raise _unwritable("--output", path, error) from error


def write_page(path: str, page: str) -> None:
    """Write what ``--html`` asks for; CliError where that fails."""
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise _unwritable("--html", path, error) from error


def _unwritable(option: str, path: str, error: OSError) -> CliError:
    text = f"{option} {path}: {error.strerror or error}"
    return CliError(FAILED, type(error).__name__, text, "check the folder and its permissions")


def _arrays(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, np.ndarray | np.generic):
        yield name, _portable(np.asarray(value))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _arrays(f"{name}.{number}", item)
    elif value is not None:
        text = f"--output: '{name}' is a {type(value).__name__}, which .npz files cannot hold"
        raise CliError(FAILED, "InvalidArgument", text, "leave --output out, or read it from Python")


def _portable(array: np.ndarray) -> np.ndarray:
    """Without pickle and dtypes that only ml_dtypes knows: bfloat16 and float8 become float32, int4 becomes int8."""
    if array.dtype == object:
        return array.astype(np.str_)
    if array.dtype.isbuiltin == 2:
        name = array.dtype.name
        return array.astype(np.uint8 if name.startswith("uint") else np.int8 if name.startswith("int") else np.float32)
    return array
