"""deploy/observe against a real Prometheus: rules, and the queries of the dashboard on the running services."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from tests.support.processes import Deployment, free_port
from tests.support.waiting import eventually

pytestmark = [pytest.mark.observed, pytest.mark.heavy]

ROOT = Path(__file__).parents[2]
OBSERVE = ROOT / "deploy" / "observe"
DASHBOARD = json.loads((OBSERVE / "grafana" / "dashboards" / "stead.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
RULES = [rule for group in yaml.safe_load((OBSERVE / "rules.yml").read_text())["groups"] for rule in group["rules"]]
RUNBOOK = (ROOT / "docs" / "operations" / "monitoring.md").read_text()


class Prometheus:
    """Debian's Prometheus, asked over its HTTP API."""

    def __init__(self, config: Path, data: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._http = httpx.Client()
        self._log = (data / "log").open("wb")
        address = self.url.removeprefix("http://")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={data}/tsdb",
                f"--web.listen-address={address}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()
        self._http.close()

    def is_ready(self) -> bool:
        assert self._process.poll() is None
        try:
            return self._http.get(f"{self.url}/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str, **parameters: str) -> Any:
        answer = self._http.get(f"{self.url}/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, query: str) -> list[float]:
        return [float(sample["value"][1]) for sample in self.get("query", query=query)["result"]]


@pytest.fixture(scope="module")
def prometheus(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Return a Prometheus with our configuration, except that it scrapes these processes, and every second."""
    config = yaml.safe_load((OBSERVE / "prometheus.yml").read_text())
    config["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(OBSERVE / name) for name in config["rule_files"]]
    for job in config["scrape_configs"]:
        package = job["job_name"].replace("-", "_")
        assert job.pop("dns_sd_configs")[0]["names"] == [job["job_name"]]
        addresses = [each.url.removeprefix("http://") for each in deployment.processes if each.package == package]
        job["static_configs"] = [{"targets": addresses}]
    data = tmp_path_factory.mktemp("prometheus")
    (data / "prometheus.yml").write_text(yaml.safe_dump(config))
    prometheus = Prometheus(data / "prometheus.yml", data)
    try:
        eventually(prometheus.is_ready)
        with deployment.management_client() as management:
            eventually(lambda: len(prometheus.values("up == 1")) == len(deployment.processes))
            # NaN until a series has grown between two scrapes.
            grown = ("job_route:stead_http_request_seconds:p99_5m", "job:stead_http_errors:ratio5m")
            while not all(any(value == value for value in prometheus.values(each)) for each in grown):
                management.users.create(name="Ada")
                time.sleep(0.2)
        yield prometheus
    finally:
        prometheus.stop()


def test_the_rules_do_what_their_tests_say() -> None:
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "rules.test.yml"]):
        finished = subprocess.run(["promtool", *command], cwd=OBSERVE, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stdout + finished.stderr


def test_each_alert_is_tested_and_has_an_entry_in_the_runbook() -> None:
    tests = yaml.safe_load((OBSERVE / "rules.test.yml").read_text())["tests"]
    tested = {each["alertname"] for test in tests for each in test.get("alert_rule_test", ()) if each["exp_alerts"]}
    alerts = {rule["alert"] for rule in RULES if "alert" in rule}
    assert tested == alerts
    assert set(re.findall(r"^\| `(Stead\w+)` \|", RUNBOOK, re.MULTILINE)) == alerts


def test_each_alert_links_to_its_entry() -> None:
    anchors = re.findall(r'^\| `(Stead\w+)` \| <a id="(\w+)"></a>', RUNBOOK, re.MULTILINE)
    links = {alert: f"docs/operations/monitoring.md#{anchor}" for alert, anchor in anchors}
    assert {rule["alert"]: rule["annotations"]["runbook_url"] for rule in RULES if "alert" in rule} == links
    assert len(set(links.values())) == len(links)


def test_each_alert_guards_an_objective() -> None:
    objectives = RUNBOOK.partition("## Objectives")[2].partition("## Alerts")[0]
    assert set(re.findall(r"`(Stead\w+)`", objectives)) == {rule["alert"] for rule in RULES if "alert" in rule}


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_of_the_dashboard_returns_data(query: str, prometheus: Prometheus) -> None:
    for variable, value in {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*"}.items():
        query = query.replace(variable, value)
    eventually(lambda: any(value == value for value in prometheus.values(query)))  # not NaN


def test_every_rule_is_evaluated_without_an_error_and_no_alert_fires(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]

    eventually(lambda: all(rule["health"] != "unknown" for rule in rules()))
    assert len(rules()) == len(RULES)
    assert [(rule["name"], rule["lastError"]) for rule in rules() if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules() if rule.get("state", "inactive") == "firing"] == []


def test_rules_and_documents_name_only_metrics_that_the_services_have(prometheus: Prometheus) -> None:
    families = prometheus.get("metadata").keys()
    used = {name for rule in RULES for name in re.findall(r"(?<!:)\bstead_\w+", rule["expr"])}
    assert {re.sub(r"_(bucket|count)$", "", name) for name in used} <= families
    assert set(re.findall(r"`(stead_\w+)", RUNBOOK)) <= families


def test_what_compose_mounts_for_it_is_there() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    observers = {name: each for name, each in services.items() if each.get("profiles") == ["observe"]}
    assert observers.keys() == {"prometheus", "grafana"}
    mounted = [volume.split(":")[0] for each in observers.values() for volume in each["volumes"]]
    assert [path for path in mounted if path.startswith("./") and not (ROOT / path).exists()] == []
