"""A server's front: what is wrong with a request, or with a model, is told from the exception's class and text.

python careful.py MODEL
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state


def answer(call: Callable[[], object]) -> str:
    """What a server would answer."""
    try:
        call()
    except state.InvalidArgument as error:
        text = str(error)
        if found := re.search(r"Invalid rank for input: (\w+) Got: (\d+) Expected: (\d+)", text):
            return f"400 {found[1]} has {found[2]} dimensions, not {found[3]}"
        if found := re.search(
            r"invalid dimensions for input: (\w+) .*\n index: (\d+) Got: (\d+) Expected: (\d+)", text
        ):
            return f"400 dimension {found[2]} of {found[1]} is {found[3]}, not {found[4]}"
        if found := re.search(r"Actual: \(tensor\((\w+)\)\) , expected: \(tensor\((\w+)\)\)", text):
            return f"400 a tensor of {found[1]}, not {found[2]}"
        if "Invalid input name" in text or "Invalid output name" in text:
            return "400 " + text.rpartition(" : ")[2].replace(": ", ":")
        if "out of data bounds" in text or "Non-zero status code" in text:
            return "422 " + re.search(r"while running (\w+) node", text)[1]
        return "400 other"
    except state.Fail as error:
        if "terminate flag" in str(error):
            return "503 stopped"
        if found := re.search(r"Non-zero status code returned while running (\w+) node", str(error)):
            return f"422 {found[1]}"
        return "500 " + re.sub(r".* : FAIL : ", "", str(error)).split(".")[0]
    except state.NoSuchFile as error:
        return "404 " + ("File doesn't exist" if "File doesn't exist" in str(error) else "?")
    except (state.InvalidProtobuf, state.InvalidGraph, state.NotImplemented, state.ModelLoadCanceled) as error:
        return f"415 {type(error).__name__} {re.match(r'.ONNXRuntimeError. : (.*?) : ([A-Z_]+)', str(error)).groups()}"
    except ValueError as error:
        return "400 " + ("missing" if "are missing from input feed" in str(error) else str(error))
    except RuntimeError as error:
        return "500 " + re.split(r"[.:] ", str(error))[0].rstrip(".")
    except TypeError:
        return "500 TypeError"
    return "200"


def main() -> None:
    path = sys.argv[1]
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    x, at = np.ones((2, 4), np.float32), np.array([0, 3])
    good = {"x": x, "at": at}
    stopped = ort.RunOptions()
    stopped.terminate = True
    cancelled = ort.SessionOptions()
    cancelled.set_load_cancellation_flag(True)
    strict = ort.SessionOptions()
    strict.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    empty = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).io_binding()
    folder = Path(tempfile.mkdtemp())
    (folder / "broken.onnx").write_bytes(b"\x08\x08broken")
    requests = {
        "good": lambda: session.run(None, good),
        "missing": lambda: session.run(None, {"x": x}),
        "unknown": lambda: session.run(None, {**good, "z": x}),
        "output": lambda: session.run(["z"], good),
        "rank": lambda: session.run(None, {**good, "x": x[0]}),
        "dimension": lambda: session.run(None, {**good, "x": x[:, :3]}),
        "type": lambda: session.run(None, {**good, "x": x.astype(np.float64)}),
        "index": lambda: session.run(None, {**good, "at": at + 2}),
        "ragged": lambda: session.run(None, {**good, "x": [[1, 2], [3]]}),
        "scalar": lambda: session.run(None, {**good, "x": 3}),
        "names": lambda: session.run("y", good),
        "stopped": lambda: session.run(None, good, stopped),
        "values": lambda: session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(x)}),
        "binding": lambda: session.run_with_iobinding(session.io_binding()),
        "another's binding": lambda: session.run_with_iobinding(empty),
        "no file": lambda: ort.InferenceSession(str(folder / "gone.onnx"), providers=["CPUExecutionProvider"]),
        "broken": lambda: ort.InferenceSession(str(folder / "broken.onnx"), providers=["CPUExecutionProvider"]),
        "no model": lambda: ort.InferenceSession(b"", providers=["CPUExecutionProvider"]),
        "cancelled": lambda: ort.InferenceSession(path, cancelled, providers=["CPUExecutionProvider"]),
        "no fallback": lambda: ort.InferenceSession(path, strict),
        "no config": lambda: ort.SessionOptions().get_session_config_entry("server.none"),
        "no device": lambda: ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0),
        "reshape": lambda: session.run(None, {**good, "x": np.ones((3, 4), np.float32)}),
        "after all": lambda: session.run(None, good),
    }
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        again = ort.InferenceSession(path, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    warned = [str(w.message).split(".Available")[0] for w in seen if issubclass(w.category, UserWarning)]
    told = {name: answer(call) for name, call in requests.items()}
    print(json.dumps({**told, "warned": warned, "providers": again.get_providers()}))


main()
