"""``onnxplug new``: the package it writes is built, installed, passes its own tests, and keeps the contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnxplug.cli import main

NAME, PROVIDER, PACKAGE = "my-npu2", "MyNpu2ExecutionProvider", "onnxplug_ep_my_npu2"
BIN = Path(sys.executable).parent
ROOMS = {"plugin", "device", "options", "memory", "transfer", "capability", "provider", "kernels/activation"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as the command writes it."""
    folder = tmp_path_factory.mktemp("author") / "onnxplug-ep-my-npu2"
    assert main(["new", NAME, "--dir", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def site(source: Path) -> Path:
    """A folder with its wheel installed."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels, site = source.parent / "wheels", source.parent / "site"
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source)]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", site, wheel], check=True)
    return site


def run(site: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A process in ``folder`` that sees the installation."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_it_has_the_rooms_of_a_provider_package(source: Path) -> None:
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert {f"src/{PACKAGE}/{room}.py" for room in ROOMS} <= files
    assert {"README.md", "pyproject.toml", "conformance.toml", ".gitignore", ".github/workflows/ci.yml"} <= files
    assert f"src/{PACKAGE}/py.typed" in files and "tests/test_provider.py" in files
    assert not any(name.endswith(".in") for name in files)


def test_every_field_is_filled_in(source: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not [word for word in text.split() if word.count("@") == 2], path
            if path.suffix == ".py":
                compile(text, str(path), "exec")
                assert len(text.splitlines()) <= 300 and max(map(len, text.splitlines()), default=0) <= 120
    assert len((source / f"src/{PACKAGE}/plugin.py").read_text(encoding="utf-8").splitlines()) <= 60


def test_it_is_found(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, str(BIN / "onnxplug"), "providers", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = (r for r in json.loads(done.stdout)["providers"] if r["name"] == PROVIDER)
    assert (row["state"], row["distribution"], row["version"]) == ("available", "onnxplug-ep-my-npu2", "0.1.0")


def test_its_own_tests_pass(site: Path, source: Path) -> None:
    done = run(site, source, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_kit_finds_it_conformant(site: Path, source: Path, tmp_path: Path) -> None:
    report = tmp_path / "conformance.json"
    kit = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "onnxplug_testkit", "--ep", "mynpu2"]
    done = run(site, source, sys.executable, *kit, "--level", "memory", "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(report.read_text(encoding="utf-8"))
    assert (data["verdict"], data["level"]) == ("conformant", "memory")
    assert data["distribution"]["name"] == "onnxplug-ep-my-npu2" and data["distribution"]["record_sha256"]
    statuses = {t["id"]: t["status"] for t in data["tests"]}
    others = {name: status for name, status in statuses.items() if status != "passed"}
    # It has one device, no queues of its own, no memory of an application's, and no node that can be given what it does not take.
    missing = ("memory.between_devices", "memory.lent_blocks", "memory.stream_copies", "memory.leaks_over_failures")
    assert others == dict.fromkeys(missing, "unsupported")


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("My NPU", "cannot name a provider", "onnxplug new my-npu"),
        ("Über", "cannot name a provider", "onnxplug new uber"),
        ("2fast", "cannot name a provider", "onnxplug new fast"),
        ("a--b", "cannot name a provider", "onnxplug new a-b"),
        ("../x", "cannot name a provider", "onnxplug new x"),
        ("class", "it is a keyword of Python", "onnxplug new class-npu"),
        ("queue", "a module of Python's library has that name", "onnxplug new queue-npu"),
        ("onnxplug", "packages of onnxplug's own have that name", "onnxplug new acme"),
        ("onnxplug-ep-acme", "packages of onnxplug's own have that name", "onnxplug new acme"),
        ("testkit", "packages of onnxplug's own have that name", "onnxplug new acme"),
        ("acme-execution-provider", "by itself", "onnxplug new acme"),
        ("Class", "cannot name a provider", "onnxplug new class-npu"),
        ("", "cannot name a provider", "onnxplug new acme"),
        ("n" * 31, "cannot name a provider", f"onnxplug new {'n' * 30}"),
        ("cpu", "CPUExecutionProvider is installed here or a package", "another name"),
        ("open-cl", "OpenCLExecutionProvider is installed here or a package", "another name"),
        ("reference", "ReferenceExecutionProvider", "another name"),
    ],
)
def test_a_name_that_cannot_be_used(
    name: str, said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 2
    error = capsys.readouterr().err
    assert said in error and hint in error
    assert not list(tmp_path.iterdir())


def test_a_provider_of_onnxruntimes_that_nobody_offers_is_called_as_programs_call_it(tmp_path: Path) -> None:
    assert main(["new", "web-nn", "--dir", str(tmp_path)]) == 0
    assert 'WebNNExecutionProvider = "onnxplug_ep_web_nn.plugin"' in (tmp_path / "pyproject.toml").read_text(
        encoding="utf-8"
    )
    assert "class WebNNOptions" in (tmp_path / "src/onnxplug_ep_web_nn/options.py").read_text(encoding="utf-8")


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken, file = tmp_path / "taken", tmp_path / "file"
    taken.mkdir()
    (taken / "mine").write_text("mine", encoding="utf-8")
    file.write_text("mine", encoding="utf-8")
    assert main(["new", "acme", "--dir", str(taken)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["new", "acme", "--dir", str(file)]) == 2
    assert "is a file" in capsys.readouterr().err
    assert main(["new", "acme", "--dir", str(file / "below")]) == 1
    assert "NotADirectoryError" in capsys.readouterr().err
    assert [p.name for p in taken.iterdir()] == ["mine"] and file.read_text(encoding="utf-8") == "mine"


def test_an_empty_folder_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "acme", "--dir", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["provider"] == "AcmeExecutionProvider" and "src/onnxplug_ep_acme/plugin.py" in told["files"]
    assert all((tmp_path / name).is_file() for name in told["files"])
