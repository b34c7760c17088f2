"""Names of providers: which are known, their default priority, and the short forms that command lines take."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onnxplug.plugins.record import ProviderLookupError
from onnxplug.plugins.switches import short

CPU = "CPUExecutionProvider"
ORACLE = "ReferenceExecutionProvider"
BRIDGE = "OnnxRuntimeExecutionProvider"
"""onnxruntime's CPU provider, which it calls as onnxplug calls its own."""

_ONNXRUNTIME = (
    "NvTensorRTRTX Tensorrt CUDA MIGraphX OpenVINO Dnnl VitisAI QNN Nnapi VSINPU Js CoreML ACL Dml Rknpu WebNN WebGpu "
    "Xnnpack CANN Azure CPU"
)
ONNXRUNTIME_NAMES: tuple[str, ...] = tuple(f"{name}ExecutionProvider" for name in _ONNXRUNTIME.split())
"""What onnxruntime 1.31 knows, in its default priority."""

_BRIDGED = (
    "NvTensorRTRTX Tensorrt MIGraphX Dnnl VitisAI QNN Nnapi VSINPU CoreML ACL Dml Rknpu WebGpu Xnnpack CANN OnnxRuntime"
)
DISTRIBUTIONS = {
    CPU: "onnxplug-ep-cpu",
    "CUDAExecutionProvider": "onnxplug-ep-cuda",
    "OpenCLExecutionProvider": "onnxplug-ep-opencl",
    "OpenVINOExecutionProvider": "onnxplug-ep-openvino",
    ORACLE: "onnxplug-ep-reference",
    **{f"{name}ExecutionProvider": "onnxplug-ep-onnxruntime" for name in _BRIDGED.split()},
}
"""What to install for the project's own providers."""

_ACCELERATORS = (*ONNXRUNTIME_NAMES[:-1], "OpenCLExecutionProvider")
_BEHIND = (CPU, ORACLE, BRIDGE)
"""The CPU provider, and those that results are compared with: a program that passes all available providers wants speed first."""
_PRIORITY = {
    **{name: place for place, name in enumerate(_ACCELERATORS)},
    **{name: len(_ACCELERATORS) + 1 + place for place, name in enumerate(_BEHIND)},
}


def by_priority(names: Iterable[str]) -> list[str]:
    """Distinct names in default priority: accelerators as onnxruntime has them, ours it lacks, third parties by name,
    CPU and what stands behind it.
    """
    return sorted(set(names), key=_priority)


def full_name(text: str, candidates: Iterable[str]) -> str:
    """The provider among ``candidates`` and all known names that ``text`` means: in full or short, any case, or a
    unique prefix.

    ``cpu`` -> ``CPUExecutionProvider``. Raises ProviderLookupError that lists the candidates.
    """
    offered = by_priority(candidates)
    known = by_priority([*offered, *ONNXRUNTIME_NAMES, *DISTRIBUTIONS])
    wanted = short(text.strip())
    for pool in (offered, known):
        if exact := [name for name in pool if short(name) == wanted]:
            return exact[0]
    for pool in (offered, known) if wanted else ():
        matches = [name for name in pool if short(name).startswith(wanted)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ProviderLookupError(text, f"'{text}' may be {' or '.join(map(short, matches))}")
    guess = similar(text, known)
    hint = f"; did you mean {short(guess)}?" if guess else ""
    raise ProviderLookupError(
        text, f"No provider is called '{text}' (there are {', '.join(map(short, offered)) or 'none'}){hint}"
    )


def similar(name: str, candidates: Collection[str]) -> str | None:
    """The candidate that ``name`` is most likely a misspelling of."""
    import difflib

    # full names are alike by their suffix, so they must be nearly equal; short ones catch what lies before it
    for form, cutoff in ((short, 0.7), (str.casefold, 0.9)):
        forms = {form(candidate): candidate for candidate in candidates}
        if found := difflib.get_close_matches(form(name), forms, n=1, cutoff=cutoff):
            return forms[found[0]]
    return None


def _priority(name: str) -> tuple[int, str]:
    return _PRIORITY.get(name, len(_ACCELERATORS)), name
