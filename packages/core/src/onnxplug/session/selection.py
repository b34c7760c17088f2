"""From the ``providers`` arguments to provider instances: who is used, who is skipped and why."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.contract.errors import EPFail, Fail, InvalidArgument
from onnxplug.contract.kernels import KernelRegistry
from onnxplug.contract.memory import DataTransfer
from onnxplug.contract.provider import SessionContext
from onnxplug.contract.records import record
from onnxplug.place import SessionProvider
from onnxplug.plugins import ProviderInstance, create_instance, registry
from onnxplug.plugins.record import ProviderLookupError
from onnxplug.session.hooks import GuardedTransfer, close, hook
from onnxplug.session.provider_args import check_one_tensorrt, provider_entries, warn_of_duplicate

if TYPE_CHECKING:
    from onnxplug.contract.logs import Logger

CPU = "CPUExecutionProvider"


@record(frozen=True, slots=True)
class Selection:
    """Providers of a session in priority order; ``skipped``: those that were named and cannot be used, each with the reason."""

    instances: tuple[ProviderInstance, ...]
    skipped: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """In priority order, each once."""
        return list(dict.fromkeys(i.spec.name for i in self.instances))

    @property
    def entries(self) -> list[tuple[str, dict[str, str]]]:
        """What selects the same providers again."""
        return [(i.spec.name, i.option_strings) for i in self.instances]


def select(
    providers: Any,
    provider_options: Any,
    config: Mapping[str, str],
    threads: int,
    seed: int | None,
    log: Logger,
) -> Selection:
    """Instances for the arguments of a session, the CPU provider last when it was not named.

    A provider that is named again is another instance where its options mean another device and it can be on several; else it is
    ignored, with onnxruntime's warning. One that exists but cannot be used here, or whose ``create`` raises EPFail, is skipped with a
    warning, as in onnxruntime; under ``session.strict_providers=1`` that is EPFail with the reason. RuntimeError for a name nobody knows
    and for options a provider refuses; ValueError for malformed arguments.
    """
    check_one_tensorrt(providers)
    entries = list(provider_entries(providers, provider_options, Available()))
    names = [name for name, _ in entries]
    if CPU in names and config.get("session.disable_cpu_ep_fallback") == "1":
        raise InvalidArgument(
            "Conflicting session configuration: explicitly added the CPU EP to the session, but also disabled fallback "
            "to the CPU EP via session configuration options."
        )
    context = SessionContext(threads, config, log, seed)
    instances: list[ProviderInstance] = []
    skipped: dict[str, str] = {}
    try:
        for at, (name, given) in enumerate(entries):
            known = [i for i in instances if i.spec.name == name]
            if (name, given) in entries[:at] or any(not i.spec.several_devices for i in known):
                warn_of_duplicate(name)
                continue
            try:
                instances.append(create_instance(registry.spec(name), given, context))
            except (ProviderLookupError, EPFail) as error:
                entry = name if names.count(name) == 1 else f"{name} {given}"
                skipped[entry] = _skipped(name, error, config)
                log.warning("%s is skipped: %s", entry, skipped[entry])
                continue
            if any(i.device == instances[-1].device for i in known):
                close([instances.pop()], log)
                warn_of_duplicate(name)
        if CPU not in names:
            instances += _cpu(context, bool(instances))
    except BaseException:
        close(instances, log)
        raise
    used = [i.spec.name for i in instances]
    for instance in instances:
        if used.count(instance.spec.name) > 1:
            instance.tell_apart()
    return Selection(tuple(instances), skipped)


class Available(Collection[str]):
    """Names of the providers that can be used here; whether one can is asked of that one alone."""

    def __contains__(self, name: object) -> bool:
        found = registry.record(str(name), load=True)
        return found is not None and found.usable

    def __iter__(self) -> Iterator[str]:
        return iter(registry.available_providers())

    def __len__(self) -> int:
        return len(registry.available_providers())


def _skipped(name: str, error: ProviderLookupError | EPFail, config: Mapping[str, str]) -> str:
    """Why a named provider is left out, where that is allowed."""
    reason = error.text if isinstance(error, EPFail) else str(error)
    if config.get("session.strict_providers") == "1":
        raise EPFail(f"{name} cannot be used: {reason}") from error
    if name not in registry.all_providers():
        raise RuntimeError(f"Unknown Provider Type: {name}") from error
    return reason


def _cpu(context: SessionContext, optional: bool) -> list[ProviderInstance]:
    try:
        return [create_instance(registry.spec(CPU), {}, context)]
    except ProviderLookupError as error:
        if optional:
            return []
        raise EPFail(f"No execution provider can be used: {error}") from error


def session_provider(instance: ProviderInstance) -> SessionProvider:
    """What placement and execution need of an instance."""
    transfer = _answer(instance, "get_data_transfer", DataTransfer)
    kernels = _answer(instance, "get_kernel_registry", KernelRegistry)
    return SessionProvider(
        instance.name,
        instance.spec.name,
        instance.call,
        KernelRegistry() if kernels is None else kernels,
        instance.allocators,
        None if transfer is None else GuardedTransfer(instance, transfer),
        instance.supports("compile"),
        instance.concurrent_run,
        hook(instance, "create_stream"),
    )


def _answer(instance: ProviderInstance, name: str, kind: type) -> Any:
    """What a hook gives; Fail when it is neither None nor of this kind."""
    answer = instance.call(name)
    if answer is not None and not isinstance(answer, kind):
        raise Fail(f"{instance.name}: {name} must give a {kind.__name__}, it gave {answer!r}")
    return answer


def op_schemas(instances: Sequence[ProviderInstance]) -> list[Any]:
    """Schemas that the providers bring for domains of their own."""
    return [schema for i in instances if i.supports("get_op_schemas") for schema in i.call("get_op_schemas") or ()]


def thread_count(requested: int) -> int:
    """intra_op_num_threads resolved: 0 means the processors this process may use."""
    if requested > 0:
        return requested
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
