"""``python -m onnxplug``: the console program."""

import sys

from onnxplug.cli import main

if __name__ == "__main__":
    sys.exit(main())
