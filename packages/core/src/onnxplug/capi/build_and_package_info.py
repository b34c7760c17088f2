"""The name and version of this package, where programs look for onnxruntime's."""

from onnxplug import __version__ as __version__
from onnxplug import package_name as package_name
