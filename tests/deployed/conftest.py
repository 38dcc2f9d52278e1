"""The image of Prometheus that docker-compose.yml names."""

import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def prometheus_image() -> str:
    """Return its name; where no registry is reached, the image stands in for it that is built here."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    image = str(compose["services"]["prometheus"]["image"])
    if subprocess.run(["docker", "pull", "--quiet", image], capture_output=True, check=False).returncode:
        stand_in = Path(__file__).parent / "prometheus"
        subprocess.run(["docker", "build", "--quiet", "--tag", image, stand_in], stdout=subprocess.DEVNULL, check=True)
    return image
