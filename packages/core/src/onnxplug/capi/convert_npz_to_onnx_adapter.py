"""``python -m onnxplug.capi.convert_npz_to_onnx_adapter``: the arrays of an .npz file as a LoRA adapter file."""

from __future__ import annotations

import argparse
import os
import sys

import numpy as np

from onnxplug.session.adapters import AdapterFormat
from onnxplug.session.ortvalue import OrtValue


def get_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the arrays of an .npz file as a LoRA adapter file.")
    parser.add_argument("--npz_file_path", type=str, required=True)
    parser.add_argument("--output_file_path", type=str, required=True)
    parser.add_argument("--adapter_version", type=int, required=True)
    parser.add_argument("--model_version", type=int, required=True)
    return parser.parse_args()


def export_lora_parameters(
    npz_file_path: os.PathLike[str] | str,
    adapter_version: int,
    model_version: int,
    output_file_path: os.PathLike[str] | str,
) -> None:
    """Write every array of ``npz_file_path`` under its name, with these versions."""
    adapter = AdapterFormat()
    adapter.set_adapter_version(adapter_version)
    adapter.set_model_version(model_version)
    with np.load(npz_file_path) as arrays:
        adapter.set_parameters({name: OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()})
    adapter.export_adapter(output_file_path)


def main() -> int:
    """The command line's work."""
    given = get_args()
    export_lora_parameters(given.npz_file_path, given.adapter_version, given.model_version, given.output_file_path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
