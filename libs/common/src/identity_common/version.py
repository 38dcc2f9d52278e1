"""The version of this installation; all packages of the workspace are released together, under one version."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("stead-common")
