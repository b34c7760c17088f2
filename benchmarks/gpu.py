"""Everything about the CUDA provider that needs a GPU, in one run: ``nox -s gpu``.

::

    nox -s gpu                            # all parts; torch's speed only with -- --torch, which installs it
    nox -s gpu -- smoke tests             # some, in this order
    nox -s gpu -- speed --minutes 9       # what is not begun by then is recorded as not run
    nox -s gpu -- score --slice 2/3 --jobs 8   # the second third of the cases, eight processes at a time

Parts: ``smoke``, each library and each way through the provider once; ``tests`` that need a device (limit, out of memory, streams,
recordings, results of every kind of kernel); ``zoo``, accuracy over architectures; ``score`` of the ONNX backend data; ``speed`` against
PyTorch, eager and compiled; ``kit``, the conformance kit at level robust for profiles cnn and transformer. Everything is measured in
processes of its own (``gpu_isolated``), so that a fault of one kernel, or a hang, is one result among others.

Results go to benchmarks/results/<date>-<device>.json, or the folder of ``--out``, with device and driver, and are written anew with each
result, so that what there is is kept where the command is killed. Exit status: 0, 1 where a part failed, 3 where there is no device.

Where nothing can be installed from the network, ``nox -s gpu_wheels -- FOLDER [VERSION OF PYTHON]`` collects beforehand what is to be
carried there, 13 MB: our wheels, which are for any Python, and cuDNN's frontend, which is for one (3.12 unless said). They go without what
they depend on: CuPy with CUDA's libraries (for CUDA 12 or 13, hundreds of megabytes), cuDNN's library, NumPy, onnx, ml-dtypes, llvmlite,
pluggy, rich, threadpoolctl, pytest and hypothesis have to be there, and what is missing is named by the first import that fails::

    python -m pip install --no-index --no-deps --target site FOLDER/*.whl
    PYTHONPATH=site python benchmarks/gpu.py smoke --minutes 3 --jobs 4 --out FOLDER-THAT-COMES-BACK

Half an hour of a GPU in commands of ten minutes, of which the first tells most: ``smoke tests --minutes 9 --jobs 4``, ``score zoo
--minutes 9 --jobs 8``, ``speed --minutes 9 --seconds 1 --search HEURISTIC``. Several smoke tests and tests at a time are for errors and
results, which are all that they tell (those of the device's memory come last, one by one); where memory is short, leave ``--jobs`` out.
Without the frontend the smoke tests named after cuDNN fail, and say so, and all others run.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gpu_isolated import Row, Told, behind, serve, side_by_side
from gpu_parts import PARTS
from timing import machine

RESULTS = Path(__file__).parent / "results"
NO_DEVICE = 3


def run(parts: Sequence[str], arguments: argparse.Namespace, device: dict[str, Any]) -> dict[str, Any]:
    """The results of these parts, written whenever there are more; a part that breaks is recorded as failed, and the others run."""
    found: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "command": arguments.command,
        "device": device,
        "machine": machine(),
    }
    if arguments.slice != (1, 1):
        found["slice"] = "-{}of{}".format(*arguments.slice)
    deadline = None if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes
    for part in parts:
        start = time.monotonic()

        def told(rows: Sequence[Row], part: str = part) -> None:
            found[part] = {"ok": None, "under_way": True, "rows": list(rows)}
            write(found, parts, arguments.out)

        try:
            found[part] = PARTS[part].conclude(rows_of(part, arguments, deadline, told))
        except Exception as error:  # the others are worth having
            found[part] = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        found[part]["seconds"] = round(time.monotonic() - start, 1)
        print(f"{part}: {VERDICTS[found[part]['ok']]}, {found[part]['seconds']} s", flush=True)
        for row in found[part].get("rows", ()):
            if "error" in row:
                print(f"  {row['item']}: {row['error'].splitlines()[0][:_SHOWN]}", flush=True)
        write(found, parts, arguments.out)
    return found


_SHOWN = 300
"""Characters of an error that are printed: where only the end of the output comes back, it says what is in the file."""
VERDICTS = {True: "ok", False: "failed", None: "no verdict"}


def rows_of(part: str, arguments: argparse.Namespace, deadline: float | None, told: Told) -> list[Row]:
    """A row for each item of a part, from children."""
    command = [
        sys.executable,
        __file__,
        "--seconds",
        str(arguments.seconds),
        "--level",
        arguments.level,
        "--search",
        arguments.search,
        "--child",
        part,
    ]
    number, of = arguments.slice
    items = list(PARTS[part].items())[number - 1 :: of]
    apart = [item for item in items if item.startswith(PARTS[part].apart)]
    rows: dict[str, Row] = {}
    for some, jobs in (([item for item in items if item not in apart], arguments.jobs), (apart, 1)):
        told_behind = functools.partial(behind, told, list(rows.values()))
        found = side_by_side(command, some, PARTS[part].seconds, deadline, jobs, told_behind)
        rows.update((row["item"], row) for row in found)
    return [rows[item] for item in items]


def share(text: str) -> tuple[int, int]:
    """K and N of "K/N". ValueError where it is none."""
    number, of = map(int, text.split("/"))
    if not 1 <= number <= of:
        raise ValueError(text)
    return number, of


def failed(found: dict[str, Any]) -> list[str]:
    """Parts that did not show what they should. A part that cannot tell (speed without PyTorch) is not among them."""
    return [part for part in PARTS if part in found and found[part]["ok"] is False]


def write(found: dict[str, Any], parts: Sequence[str], folder: Path = RESULTS) -> Path:
    """The results as a file named after day, device and, where they are not all, the parts. A process that ends meanwhile leaves the one
    before."""
    slug = re.sub(r"[^a-z0-9]+", "-", found["device"]["name"].lower()).strip("-")
    some = "" if set(parts) == set(PARTS) else f"-{'-'.join(parts)}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found['date']}-{slug}{some}{found.get('slice', '')}.json"
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(found, indent=1, allow_nan=True) + "\n")
    os.replace(beside, path)
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
            (
                "onnxplug-ep-cuda", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cudnn-frontend", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13",
                "torch",
            )
        ),
    }  # fmt: skip


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
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], help=f"{', '.join(PARTS)} (default: all)", metavar="PART"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="spent on the runs of each model")
    parser.add_argument("--minutes", type=float, help="after which nothing more is begun")
    parser.add_argument("--level", default="robust", help="of the conformance kit (default: robust, the highest)")
    parser.add_argument(
        "--search",
        default="EXHAUSTIVE",
        choices=["EXHAUSTIVE", "HEURISTIC", "DEFAULT"],
        help="for cuDNN's plans in comparisons of speed (default: EXHAUSTIVE, minutes for a model of convolutions)",
    )
    parser.add_argument("--slice", type=share, default=(1, 1), help="K/N: every Nth item of each part, from the Kth on")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, for parts that bear it")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default: benchmarks/results)")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.child is not None:
        part, items, report = arguments.child
        return serve(lambda item: PARTS[part].measure(item, arguments), Path(items), Path(report))
    arguments.command = " ".join(["nox -s gpu --", *(sys.argv[1:] if given is None else given)]).removesuffix(" --")
    from onnxplug.contract import Unavailable
    from onnxplug_ep_cuda.device import check

    answer = check()
    if isinstance(answer, Unavailable):
        print(f"no device: {answer.reason}; {answer.fix}", file=sys.stderr)
        return NO_DEVICE
    parts = arguments.parts or list(PARTS)
    found = run(parts, arguments, described())
    print(f"written to {write(found, parts, arguments.out)}")
    return 1 if failed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
