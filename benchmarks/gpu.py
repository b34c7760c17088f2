"""Everything about the CUDA provider that needs a GPU, in one run: ``nox -s gpu``.

::

    nox -s gpu                            # all parts; torch's speed only with -- --torch, which installs it
    nox -s gpu -- --only speed --torch

Parts: the tests that need a device (limit, out of memory, streams, recordings, results of every kind of kernel); the conformance kit
at level robust for profiles cnn and transformer; the ONNX backend data; accuracy over architectures; speed against PyTorch, eager and
compiled. Results go to benchmarks/results/<date>-<device>.json with device and driver. Exit status: 0, 1 where a part failed, 3 where
there is no device.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import backend_score
from gpu_contrib import LARGEST_ERRORS, MODELS
from gpu_models import ARCHITECTURES
from models import light
from timing import compared, interleaved, machine

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
PROFILES = ("cnn", "transformer")
LIGHT = ("bvlc_alexnet", "densenet121", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19")
BATCHES = (1, 32)
LARGEST_ERROR = 2e-5
"""Of the largest result, for float32 without TF32: the project's aim for real models."""
LEAST = {"right": 2018, "on_first": 1200}
"""The project's aims for the ONNX backend data."""
NO_DEVICE = 3


def tests(_: argparse.Namespace) -> dict[str, Any]:
    """The tests that need a device."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        file = ROOT / "packages" / "ep-cuda" / "tests" / "test_cuda_hardware.py"
        subprocess.run([sys.executable, "-m", "pytest", "-q", str(file), f"--junitxml={report}"], check=False)
        return counted(ElementTree.parse(report).getroot())


def counted(root: ElementTree.Element) -> dict[str, Any]:
    """What a JUnit report counts; ``ok`` where tests ran and none failed."""
    suites = list(root.iter("testsuite"))
    sums = {name: sum(int(s.get(name, 0)) for s in suites) for name in ("tests", "failures", "errors", "skipped")}
    ran = sums["tests"] - sums["skipped"]
    return {**sums, "ok": ran > 0 and not sums["failures"] and not sums["errors"]}


def kit(_: argparse.Namespace) -> dict[str, Any]:
    """The conformance kit at level robust, for each profile."""
    found: dict[str, Any] = {}
    waivers = ROOT / "packages" / "ep-cuda" / "conformance.toml"
    for profile in PROFILES:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--pyargs",
                "onnxplug_testkit",
                "--ep",
                "cuda",
                "--level",
                "robust",
            ]
            command += ["--profile", profile, "--waivers", str(waivers), "--report", str(report)]
            status = subprocess.run(command, check=False).returncode
            data = json.loads(report.read_text()) if report.exists() else {}
            found[profile] = {"status": status, "verdict": data.get("verdict"), "level": data.get("level")}
    return {**found, "ok": all(found[profile]["status"] == 0 for profile in PROFILES)}


def backend(_: argparse.Namespace) -> dict[str, Any]:
    """The ONNX backend data."""
    found = backend_score.score(CUDA)
    return {**found, "ok": all(found[name] >= least for name, least in LEAST.items())}


def accuracy(_: argparse.Namespace) -> dict[str, Any]:
    """Largest error of each architecture against the CPU provider, with and without TF32, as a share of the largest result."""
    models = {name: (light(name), None) for name in LIGHT}
    models |= {name: ((made := make()).model, made.feeds(2)) for name, make in {**ARCHITECTURES, **MODELS}.items()}
    rows = []
    for name, (model, given) in models.items():
        data = model.SerializeToString()
        reference = session(data, CPU)
        feeds = given if given is not None else random_feeds(reference)
        wanted = reference.run(None, feeds)
        row: dict[str, Any] = {"model": name}
        for tf32 in (0, 1):
            made = session(data, CUDA, use_tf32=tf32)
            row[f"error_tf32_{tf32}"] = largest_error(made.run(None, feeds), wanted)
            made.close()
        rows.append(row)
    allowed = {row["model"]: LARGEST_ERRORS.get(row["model"], LARGEST_ERROR) for row in rows}
    return {"rows": rows, "ok": all(row["error_tf32_0"] <= allowed[row["model"]] for row in rows)}


def largest_error(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference as a share of the largest magnitude, over all outputs; infinite where results are not finite."""
    shares = []
    for got, right in zip(results, wanted, strict=True):
        scale = float(np.abs(right).max())
        error = float(np.abs(got.astype(np.float64) - right).max())
        shares.append(error / max(scale, 1e-30) if np.isfinite(got).all() else float("inf"))
    return max(shares)


def speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a run with inputs and outputs on the device, in turns with PyTorch where it is installed."""
    with_torch = importlib.util.find_spec("torch") is not None
    rows = []
    for name, make in ARCHITECTURES.items():
        made = make()
        data = made.model.SerializeToString()
        for batch in BATCHES:
            feeds = made.feeds(batch)
            for graphs in (0, 1) if batch == 1 else (0,):
                calls: dict[str, Callable[[], object]] = {"onnxplug": bound(data, feeds, graphs)}
                if with_torch:
                    calls |= torch_calls(made.model, feeds, captured=bool(graphs))
                times = interleaved(list(calls.values()), arguments.seconds)
                samples = dict(zip(calls, times, strict=True))
                row: dict[str, Any] = {"model": name, "batch": batch, "cuda_graph": bool(graphs)}
                row |= {f"{n}_ms": round(float(np.median(t)) * 1e3, 5) for n, t in samples.items()}
                row |= {
                    f"to_{n}": compared({"onnxplug": samples["onnxplug"], n: t})["ratio"]
                    for n, t in samples.items()
                    if n != "onnxplug"
                }
                rows.append(row)
    return {"rows": rows, "ok": all(fast_enough(row) for row in rows) if with_torch else None}


def fast_enough(row: dict[str, Any]) -> bool:
    """The project's aims: no slower than eager; recorded, no slower than compiled."""
    return bool(row["to_torch_compiled"] <= 1 if row["cuda_graph"] else row["to_torch_eager"] <= 1)


def session(data: bytes, provider: str, **options: object) -> Any:
    """A session in which the provider is not replaced by another."""
    import onnxplug

    strict = onnxplug.SessionOptions()
    strict.add_session_config_entry("session.strict_providers", "1")
    return onnxplug.InferenceSession(data, strict, providers=[(provider, options), *([CPU] if provider != CPU else [])])


def bound(data: bytes, feeds: dict[str, np.ndarray], graphs: int) -> Callable[[], object]:
    """A run with everything on the device, waited for."""
    import onnxplug

    made = session(data, CUDA, enable_cuda_graph=graphs)
    binding = made.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxplug.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for output, value in zip(made.get_outputs(), made.run(None, feeds), strict=True):
        place = onnxplug.OrtValue.ortvalue_from_shape_and_type(value.shape, value.dtype, "cuda", 0)
        binding.bind_ortvalue_output(output.name, place)

    def call() -> None:
        made.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return call


def torch_calls(model: Any, feeds: dict[str, np.ndarray], *, captured: bool) -> dict[str, Callable[[], object]]:
    """PyTorch's runs of the same graph: eager and compiled, the latter with CUDA graphs where ours are ``captured``."""
    import torch

    import gpu_torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True  # our default
    plain = gpu_torch.function(model, "cuda")
    inputs = [torch.from_numpy(feeds[i.name]).cuda() for i in model.graph.input]
    compiled = torch.compile(plain, mode="reduce-overhead" if captured else "default")

    def timed(function: Callable[..., Any]) -> Callable[[], object]:
        def call() -> None:
            with torch.inference_mode():
                function(*inputs)
            torch.cuda.synchronize()

        return call

    return {"torch_eager": timed(plain), "torch_compiled": timed(compiled)}


def random_feeds(made: Any) -> dict[str, np.ndarray]:
    """Seeded inputs of a session over floats."""
    rng = np.random.default_rng(1)
    return {
        i.name: rng.standard_normal([d if isinstance(d, int) else 1 for d in i.shape]).astype(np.float32)
        for i in made.get_inputs()
    }


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "tests": tests, "kit": kit, "backend": backend, "accuracy": accuracy, "speed": speed,
}  # fmt: skip


def run(parts: Sequence[str], arguments: argparse.Namespace, device: dict[str, Any]) -> dict[str, Any]:
    """The results of these parts; a part that raises is recorded as failed, and the others run."""
    found: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "command": arguments.command,
        "device": device,
        "machine": machine(),
    }
    for part in parts:
        try:
            found[part] = PARTS[part](arguments)
        except Exception as error:  # the others are worth having
            found[part] = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    return found


def failed(found: dict[str, Any]) -> list[str]:
    """Parts that did not show what they should. A part that cannot tell (speed without PyTorch) is not among them."""
    return [part for part in PARTS if part in found and found[part]["ok"] is False]


def write(found: dict[str, Any], folder: Path = RESULTS) -> Path:
    """The results as a file named after day and device."""
    slug = re.sub(r"[^a-z0-9]+", "-", found["device"]["name"].lower()).strip("-")
    folder.mkdir(exist_ok=True)
    path = folder / f"{found['date']}-{slug}.json"
    path.write_text(json.dumps(found, indent=1, allow_nan=True) + "\n")
    return path


def described() -> dict[str, Any]:
    """Device 0, its driver, and the libraries."""
    from cupy.cuda import runtime

    properties = runtime.getDeviceProperties(0)
    return {
        "name": properties["name"].decode(),
        "capability": f"{properties['major']}.{properties['minor']}",
        "memory": properties["totalGlobalMem"],
        "driver": nvidia_driver(),
        "cuda_driver": runtime.driverGetVersion(),
        "cuda_runtime": runtime.runtimeGetVersion(),
        **versions(
            ("onnxplug-ep-cuda", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cudnn-frontend", "nvidia-cudnn-cu12", "torch")
        ),
    }


def versions(names: Sequence[str]) -> dict[str, str]:
    """Versions of those distributions that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def nvidia_driver() -> str:
    """The driver's version as nvidia-smi gives it, empty where that is missing."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main(given: Sequence[str] | None = None) -> int:
    """Run the parts, write the results; the exit status."""
    parser = argparse.ArgumentParser(description="What of the CUDA provider needs a GPU.")
    parser.add_argument("--only", choices=list(PARTS), action="append", help="a part (default: all)")
    parser.add_argument("--seconds", type=float, default=3.0, help="spent on the runs of each model")
    arguments = parser.parse_args(given)
    arguments.command = " ".join(["nox -s gpu --", *(sys.argv[1:] if given is None else given)]).removesuffix(" --")
    from onnxplug.contract import Unavailable
    from onnxplug_ep_cuda.device import check

    answer = check()
    if isinstance(answer, Unavailable):
        print(f"no device: {answer.reason}; {answer.fix}", file=sys.stderr)
        return NO_DEVICE
    found = run(arguments.only or list(PARTS), arguments, described())
    path = write(found)
    for part in PARTS:
        if part in found:
            print(
                f"{part}: {'failed' if found[part]['ok'] is False else 'no verdict' if found[part]['ok'] is None else 'ok'}"
            )
    print(f"written to {path}")
    return 1 if failed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
