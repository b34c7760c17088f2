"""The ``providers`` and ``provider_options`` arguments of a session, checked and brought into one form."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

ProviderArgument = str | tuple[str, dict[Any, Any]]
TENSORRT = ("NvTensorRTRTXExecutionProvider", "TensorrtExecutionProvider")


def names_among(providers: Any) -> list[Any]:
    """What stands for names in a ``providers`` argument of any form."""
    return [p[0] if isinstance(p, tuple) and p else p for p in providers or ()]


def check_one_tensorrt(providers: Any) -> None:
    """ValueError for both of the providers that have TensorRT in them, as onnxruntime has it."""
    if isinstance(providers, Sequence) and all(name in names_among(providers) for name in TENSORRT):
        rtx, tensorrt = TENSORRT
        raise ValueError(f"Cannot enable both '{tensorrt}' and '{rtx}' in the same session.")


def check_and_normalize_provider_args(
    providers: Sequence[ProviderArgument] | None,
    provider_options: Sequence[dict[Any, Any]] | None,
    available_provider_names: Collection[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """(names, option dictionaries) in the order given, keys and values of the options as strings.

    A name that is not available and a name given twice are warned about; of two the first counts. ValueError for
    anything that is not a sequence of names and (name, dict) pairs, or for options that do not go with the names.
    """
    normalized: dict[str, dict[str, str]] = {}
    for name, options in provider_entries(providers, provider_options, available_provider_names):
        if name in normalized:
            warn_of_duplicate(name)
        else:
            normalized[name] = options
    return list(normalized), list(normalized.values())


def provider_entries(
    providers: Sequence[ProviderArgument] | None,
    provider_options: Sequence[dict[Any, Any]] | None,
    available_provider_names: Collection[str],
) -> Iterator[tuple[str, dict[str, str]]]:
    """As ``check_and_normalize_provider_args``, in pairs and with each name as often as it is given."""
    for name, options in () if providers is None else _pairs(providers, provider_options):
        if name not in available_provider_names:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names."
                f"Available providers: '{', '.join(available_provider_names)}'",
                stacklevel=3,
            )
        yield name, {str(key): str(value) for key, value in options.items()}


def warn_of_duplicate(name: str) -> None:
    """Say, as onnxruntime does, that a provider is there already."""
    warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=3)


def _pairs(
    providers: Sequence[ProviderArgument], provider_options: Sequence[dict[Any, Any]] | None
) -> Iterable[tuple[str, dict[Any, Any]]]:
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if provider_options is None:
        return map(_pair, providers)
    if not isinstance(provider_options, Sequence):
        raise ValueError("'provider_options' should be a sequence.")
    if len(providers) != len(provider_options):
        raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
    names = [provider for provider in providers if isinstance(provider, str)]
    if len(names) != len(providers):
        raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
    if not all(isinstance(options, dict) for options in provider_options):
        raise ValueError("'provider_options' values must be dicts.")
    return zip(names, provider_options, strict=True)


def _pair(provider: Any) -> tuple[str, dict[Any, Any]]:
    if isinstance(provider, str):
        return provider, {}
    if (
        isinstance(provider, tuple)
        and len(provider) == 2
        and isinstance(provider[0], str)
        and isinstance(provider[1], dict)
    ):
        return provider
    raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
