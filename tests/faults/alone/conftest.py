"""Servers that these tests may kill, and the services as processes on them, new for every module."""

from tests.support.deployed import deployment_fixtures

globals().update(deployment_fixtures("module"))
