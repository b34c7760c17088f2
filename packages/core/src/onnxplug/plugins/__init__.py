"""Which providers there are and why one cannot be used: discovery by metadata, isolated loading, one instance per
session.

::

    from onnxplug.plugins import create_instance, registry

    spec = registry.spec("CPUExecutionProvider")     # or ProviderLookupError, which says what is wrong and what to do
    instance = create_instance(spec, {"threads": "4"}, context)

``registry`` is the process-wide front; ``observers`` calls those who listen to sessions. Importing this package reads
no metadata and imports no plugin.
"""

from onnxplug.plugins.definition import InvalidProvider
from onnxplug.plugins.instance import ProviderInstance, create_instance
from onnxplug.plugins.observers import observers_for, register_observer, unregister_observer
from onnxplug.plugins.record import PluginRecord, ProviderLookupError

__all__ = [
    "InvalidProvider", "PluginRecord", "ProviderInstance", "ProviderLookupError", "create_instance", "observers_for",
    "register_observer", "unregister_observer",
]  # fmt: skip
