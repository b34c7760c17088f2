"""Check built wheels: metadata, licence, type marker, entry points, and that nothing but the package is inside.

::

    python tools/wheel_check.py DIST
"""

from __future__ import annotations

import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

REQUIRED = (
    "Name",
    "Version",
    "Summary",
    "Requires-Python",
    "License-Expression",
    "License-File",
    "Author",
    "Classifier",
)
IMPORTS = {
    "onnxplug": "onnxplug",
    "onnxplug-kernels": "onnxplug_kernels",
    "onnxplug-ep-cpu": "onnxplug_ep_cpu",
    "onnxplug-ep-reference": "onnxplug_ep_reference",
    "onnxplug-kernel-text": "onnxplug_kernel_text",
    "onnxplug-ep-cuda": "onnxplug_ep_cuda",
    "onnxplug-ep-opencl": "onnxplug_ep_opencl",
    "onnxplug-ep-onnxruntime": "onnxplug_ep_onnxruntime",
    "onnxplug-ep-openvino": "onnxplug_ep_openvino",
    "onnxplug-testkit": "onnxplug_testkit",
}


def problems(wheel: Path) -> list[str]:
    """What is wrong with one wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(n.partition("/")[0] for n in names if n.endswith(".dist-info/METADATA"))
        metadata: Message = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        entry_points = archive.read(f"{info}/entry_points.txt").decode() if f"{info}/entry_points.txt" in names else ""
    package = IMPORTS[metadata["Name"]]
    found = [f"metadata lacks {field}" for field in REQUIRED if not metadata[field]]
    if not str(metadata.get_payload()).strip():
        found.append("no description (README)")
    if f"{info}/licenses/LICENSE" not in names:
        found.append("no licence file")
    if f"{package}/py.typed" not in names:
        found.append("no py.typed")
    found += [f"stray file {n}" for n in names if n.partition("/")[0] not in (package, info)]
    if "-ep-" in metadata["Name"] and "[onnxplug.providers]" not in entry_points:
        found.append("no entry point of group onnxplug.providers")
    if metadata["Name"] == "onnxplug" and "onnxplug.cli:main" not in entry_points:
        found.append("no console script")
    if metadata["Name"] == "onnxplug-testkit" and "[pytest11]" not in entry_points:
        found.append("no pytest plugin")
    return found


def main(dist: Path) -> int:
    """Print a line for each wheel; 1 if anything is wrong or a package has no wheel."""
    wheels = sorted(dist.glob("*.whl"))
    wrong = 0
    if len(wheels) != len(IMPORTS):
        print(f"{len(wheels)} wheels in {dist}, expected {len(IMPORTS)}")
        wrong = 1
    for wheel in wheels:
        found = problems(wheel)
        wrong |= bool(found)
        print(f"{wheel.name}: {'; '.join(found) or 'ok'}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
