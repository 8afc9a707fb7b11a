"""opsmith judges, writes and installs kernels for PyTorch."""

from opsmith.errors import OpsmithError

__all__ = ["OpsmithError", "__version__"]

__version__ = "0.1.0"
