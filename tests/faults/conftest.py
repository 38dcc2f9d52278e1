"""Servers that these tests may kill, and the services as processes on them: shared by the modules of this directory."""

from tests.support.deployed import deployment_fixtures

globals().update(deployment_fixtures("session"))
