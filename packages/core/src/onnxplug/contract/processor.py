"""What the processor can do, as NumPy found out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def features() -> list[str]:
    """Extensions of the instruction set that the processor has and NumPy knows ("AVX512F")."""
    core = getattr(np, "_core", None) or np.core
    found: Mapping[str, bool] = getattr(core._multiarray_umath, "__cpu_features__", {})
    return [name for name, has in found.items() if has]
