"""A real Prometheus: promtool's judgement, and a server that scrapes, evaluates rules and tells which alerts fire."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import attrs

from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import LoggedProcess, start_process
from tests.support.debian import debian_program
from tests.support.eventually import eventually


_READY_WITHIN_S = 60.0
_TOOL_WITHIN_S = 240.0
#: promtool's exit code where a scrape is valid, and its style is not.
_LINTED = 3


def promtool(*arguments: str | Path, typed: str = "") -> str:
    """Run promtool; return what it said, or fail with it."""
    command = [debian_program("prometheus", "promtool"), *arguments]
    done = subprocess.run(command, check=False, input=typed, capture_output=True, text=True, timeout=_TOOL_WITHIN_S)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def complaints(metrics: str) -> list[str]:
    """Return what promtool finds wrong with a scrape; fail where it cannot be read at all."""
    command = [debian_program("prometheus", "promtool"), "check", "metrics"]
    done = subprocess.run(command, check=False, input=metrics, capture_output=True, text=True, timeout=_TOOL_WITHIN_S)
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode in {0, _LINTED}, lines
    return lines


@attrs.frozen
class Prometheus:
    """One running server."""

    url: str
    process: LoggedProcess

    async def query(self, expression: str) -> list[tuple[Mapping[str, str], float]]:
        """Evaluate an expression now; return each series' labels and value."""
        data = await self._get("query", query=expression)
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    async def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that are pending or firing."""
        alerts: list[dict[str, Any]] = (await self._get("alerts"))["alerts"]
        return alerts

    async def firing(self, name: str, **labels: str) -> list[dict[str, Any]]:
        """Return the alerts of that name and with these labels that fire."""
        return [
            alert
            for alert in await self.alerts()
            if alert["state"] == "firing"
            and alert["labels"]["alertname"] == name
            and labels.items() <= alert["labels"].items()
        ]

    async def targets(self) -> list[dict[str, Any]]:
        """Return what is scraped, and how that went."""
        targets: list[dict[str, Any]] = (await self._get("targets"))["activeTargets"]
        return targets

    async def rules(self) -> list[dict[str, Any]]:
        """Return every rule as the server holds it."""
        groups = (await self._get("rules"))["groups"]
        return [rule for group in groups for rule in group["rules"]]

    async def wait_until_ready(self) -> None:
        """Wait until it answers."""

        async def ready() -> bool:
            assert self.process.is_running, self.process.log_tail()
            try:
                async with aiohttp.ClientSession() as http, http.get(f"{self.url}/-/ready") as response:
                    return response.status == 200
            except aiohttp.ClientError as error:
                raise AssertionError(error) from error

        await eventually(ready, within_s=_READY_WITHIN_S, what="Prometheus is ready")

    async def _get(self, what: str, **query: str) -> Any:
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/api/v1/{what}", params=query) as response:
            answer = await response.json()
        assert answer["status"] == "success", answer
        return answer["data"]


@contextmanager
def prometheus(work_dir: Path, config_file: Path) -> Iterator[Prometheus]:
    """Run a server on this configuration until the end of the block."""
    (port,) = free_ports(1)
    command = [
        str(debian_program("prometheus")),
        f"--config.file={config_file}",
        f"--storage.tsdb.path={work_dir / 'tsdb'}",
        f"--web.listen-address={HOST}:{port}",
        "--storage.tsdb.retention.time=1h",
        "--log.level=warn",
    ]
    process = start_process("prometheus", command, log_file=work_dir / "prometheus.log", cwd=work_dir)
    try:
        yield Prometheus(f"http://{HOST}:{port}", process)
    finally:
        process.terminate()
