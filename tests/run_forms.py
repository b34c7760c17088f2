"""The three ways to run a model give the same bits: ``run``, ``run_with_ort_values``, ``run_with_iobinding`` (into fresh memory,
and into the memory of the run before).

``python tests/run_forms.py FOLDER [NAME ...]`` (``nox -s forms -- FOLDER``) does so for every NAME.onnx of a folder, fed with
the arrays of NAME.npz beside it, ``caseN/in/INPUT``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import onnxplug

Feed = Mapping[str, Any]


def differences(session: onnxplug.InferenceSession, feed: Feed) -> list[str]:
    """How the results of the other ways differ from those of ``run``."""
    wanted = session.run(None, dict(feed))
    names = [each.name for each in session.get_outputs()]
    values = {name: _value(array) for name, array in feed.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for name in names:
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    bound = binding.get_outputs()
    got = {
        "run again": session.run(names, dict(feed)),
        "run_with_ort_values": [_python(v) for v in session.run_with_ort_values(None, values)],
        "run_with_iobinding": [_python(v) for v in bound],
        "copy_outputs_to_cpu": binding.copy_outputs_to_cpu(),
    }
    if all(value.is_tensor() and value.data_type() != "tensor(string)" for value in bound):
        for name, value in zip(names, bound, strict=True):
            binding.bind_ortvalue_output(name, value)
        session.run_with_iobinding(binding)
        got["run_with_iobinding into given memory"] = [_python(v) for v in binding.get_outputs()]
    return [
        f"{way}: {name}"
        for way, results in got.items()
        for name, result, want in zip(names, results, wanted, strict=True)
        if not same(result, want)
    ]


def same(a: Any, b: Any) -> bool:
    """Whether two results are equal to the bit."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype == object or b.dtype == object:
            return a.shape == b.shape and a.tolist() == b.tolist()
        return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    return type(a) is type(b) and bool(a == b)


def _value(array: Any) -> onnxplug.OrtValue:
    if isinstance(array, np.ndarray) and array.dtype.kind in "US":
        array = array.astype(str).astype(object)
    if isinstance(array, np.ndarray) and array.dtype != object:
        return onnxplug.OrtValue.ortvalue_from_numpy(array)
    return onnxplug.OrtValue._wrap(array)


def _python(value: onnxplug.OrtValue) -> Any:
    return value.numpy() if value.is_tensor() else value._payload


def cases(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """The feeds in a file of arrays, by case."""
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path, allow_pickle=True) as arrays:
        for key in arrays.files:
            case, kind, name = key.split("/", 2)
            if kind == "in":
                found.setdefault(case, {})[name] = arrays[key]
    return found


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 when anything differs."""
    if not arguments:
        print(__doc__)
        return 2
    failed = count = 0
    for model in sorted(Path(arguments[0]).glob("*.onnx")):
        if arguments[1:] and model.stem not in arguments[1:]:
            continue
        start = time.perf_counter()
        try:
            with onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"]) as session:
                found = [
                    f"{c}: {text}"
                    for c, f in cases(model.with_suffix(".npz")).items()
                    for text in differences(session, f)
                ]
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        count += 1
        failed += bool(found)
        print(f"{model.stem}: {'; '.join(found) or 'same'} ({time.perf_counter() - start:.1f} s)", flush=True)
    print(f"{count} models, {failed} differ")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
