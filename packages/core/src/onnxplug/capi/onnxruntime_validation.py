"""What onnxruntime checks when it is imported; onnxplug is Python and has nothing to check."""

from __future__ import annotations

from onnxplug import __version__, package_name


def check_distro_info() -> None:
    """No operating system is warned about."""


def get_package_name_and_version_info() -> tuple[str, str, str]:
    """(package name, version, CUDA version): the last is empty, as of packages that were built without CUDA."""
    return package_name, __version__, ""


def check_training_module() -> tuple[bool, str, str, str]:
    """(whether ``ORTModule`` is there, and the above): there is no training."""
    return False, *get_package_name_and_version_info()
