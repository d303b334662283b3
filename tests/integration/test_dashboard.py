"""The Grafana dashboard: made by its own program, laid out without overlaps, in PromQL that Prometheus takes."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.prometheus import promtool


ROOT = Path(__file__).parents[2]
FILE = ROOT / "ops/grafana/mm2py.json"
RECORDED = ROOT / "ops/prometheus/recording.rules.yml"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
VARIABLES = ("datasource", "job", "source", "target")


def panels() -> Iterator[dict[str, Any]]:
    """Return all panels, also those inside folded rows."""
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", ())


def expressions() -> Iterator[str]:
    for panel in panels():
        for target in panel.get("targets", ()):
            yield target["expr"]


def test_the_file_is_what_its_program_makes() -> None:
    """The JSON is not edited by hand: the next run of its program would undo the edit."""
    made = subprocess.run([sys.executable, ROOT / "ops/grafana/dashboard.py"], check=True, capture_output=True)

    assert made.stdout == FILE.read_bytes()


def test_each_panel_has_a_place_of_its_own() -> None:
    """Ids are unique; no panel lies over another or beyond the grid."""
    found = list(panels())
    places = [panel["gridPos"] for panel in found]

    assert len({panel["id"] for panel in found}) == len(found)
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


def test_each_panel_asks_the_chosen_prometheus() -> None:
    """Every panel and query uses the chosen data source, and has a unit."""
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == DATASOURCE, panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert all(target["datasource"] == DATASOURCE for target in panel["targets"])
        assert [target["refId"] for target in panel["targets"]] == list("ABCDE")[: len(panel["targets"])]


def test_variables_are_declared() -> None:
    """What queries take from the reader's choice is a variable of the dashboard, and each variable is used."""
    declared = tuple(variable["name"] for variable in DASHBOARD["templating"]["list"])
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))

    assert declared == VARIABLES
    assert used == {*VARIABLES, "__rate_interval"}


def test_only_our_jobs_are_shown() -> None:
    """All jobs are all that have mm2py: other programs are scraped, and have processes, too."""
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}

    assert variables["job"]["definition"] == "label_values(mm2py_build_info, job)"
    assert variables["job"]["allValue"] is None


def test_a_flow_of_several_nodes_counts_once(tmp_path: Path) -> None:
    """Each node says of the flow, of its clusters and of its remote topics what the others say."""
    said = {
        'mm2py_flow_state{{{},source="A",target="B"}}': 5,
        'mm2py_flow_state{{{},source="B",target="A"}}': 1,
        'mm2py_flow_missing_destination_partitions{{{},source="A",target="B"}}': 3,
        'mm2py_cluster_reachable{{{},source="A",target="B",cluster="A"}}': 0,
    }
    scraped = [
        {"series": name.format(f'job="mm2py",instance="{node}"'), "values": str(value)}
        for name, value in said.items()
        for node in ("n:8083", "m:8083")
    ]
    counts = {"Flows that run": 1, "Flows or connectors that failed": 1, "Clusters away": 1, "Partitions missing": 3}
    asked = {panel["title"]: panel["targets"][0]["expr"] for panel in panels() if panel["type"] == "stat"}
    tests = [
        {"expr": re.sub(r"\$\w+", ".*", asked[title]), "eval_time": "0s", "exp_samples": [{"labels": "{}", "value": n}]}
        for title, n in counts.items()
    ]
    file = tmp_path / "panels.test.yml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": scraped, "promql_expr_test": tests}]}))

    promtool("test", "rules", file)


@pytest.mark.parametrize(("waited", "shown"), [("10", []), ("400", [{"labels": "{}", "value": 200}])])
def test_short_retention_alone_is_no_danger(tmp_path: Path, waited: str, shown: list[dict[str, Any]]) -> None:
    """Of a topic that is kept for ten minutes a new record may be deleted in ten minutes, even if all is copied."""
    (asked,) = [panel["targets"][0]["expr"] for panel in panels() if panel["title"] == "Until loss"]
    labels = '{job="mm2py",instance="n:8083",source="A",target="B",topic="A.t",partition="0"}'
    left = str(600 - int(waited))
    scraped = {
        "mm2py_flow_retention_loss_seconds": left,
        "mm2py_partition_retention_loss_seconds": left,
        "mm2py_partition_lag_seconds": waited,
    }
    test = {
        "interval": "15s",
        "input_series": [{"series": name + labels, "values": f"{value}x8"} for name, value in scraped.items()],
        "promql_expr_test": [{"expr": re.sub(r"\$\w+", ".*", asked), "eval_time": "1m", "exp_samples": shown}],
    }
    file = tmp_path / "loss.test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RECORDED)], "tests": [test]}))

    promtool("test", "rules", file)


def test_a_node_that_stands_by_hides_no_state(tmp_path: Path) -> None:
    """With one copy task, the default, all nodes but one do; what that one says is the flow's state."""
    asked = {panel["title"]: panel["targets"][0]["expr"] for panel in panels() if panel.get("targets")}
    flow, connector = 'source="{}",target="B"', 'connector="MirrorSourceConnector",source="{}",target="B"'
    said = {("A", "n:8083"): 4, ("A", "m:8083"): 8, ("C", "n:8083"): 8}
    names = {"State of flows": ("mm2py_flow_state", flow), "State of connectors": ("mm2py_connector_state", connector)}
    scraped = [
        {"series": f'{name}{{job="mm2py",instance="{node}",{labels.format(source)}}}', "values": str(state)}
        for name, labels in names.values()
        for (source, node), state in said.items()
    ]
    tests = [
        {
            "expr": re.sub(r"\$\w+", ".*", asked[title]),
            "eval_time": "0s",
            "exp_samples": [
                {"labels": f"{{{labels.format(source)}}}", "value": state} for source, state in (("A", 4), ("C", 8))
            ],
        }
        for title, (_, labels) in names.items()
    ]
    file = tmp_path / "states.test.yml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": scraped, "promql_expr_test": tests}]}))

    promtool("test", "rules", file)


def test_tables_have_twenty_rows(tmp_path: Path) -> None:
    """Grafana joins what the columns' queries answer: one that answers more adds rows."""
    names = {name for expr in table_expressions() for name in re.findall(r"\w+(?={)", expr)}
    scraped = [
        {"series": f'{name}{{job="mm2py",source="A",target="B",topic="t{n}",group="g{n}"}}', "values": str(n)}
        for name in names
        for n in range(30)
    ]
    tests = [
        {"expr": f"count({expr})", "eval_time": "0s", "exp_samples": [{"labels": "{}", "value": 20}]}
        for expr in table_expressions()
    ]
    file = tmp_path / "tables.test.yml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": scraped, "promql_expr_test": tests}]}))

    assert len(tests) == 5
    promtool("test", "rules", file)


def table_expressions() -> list[str]:
    found = [panel["targets"] for panel in panels() if panel["type"] == "table"]
    return [re.sub(r"\$(job|source|target)", ".*", target["expr"]) for targets in found for target in targets]


def test_prometheus_takes_every_query(tmp_path: Path) -> None:
    """Each query, with a choice in place of the variables, is PromQL."""
    chosen = [re.sub(r"\$(job|source|target)", ".*", expr.replace("$__rate_interval", "1m")) for expr in expressions()]
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(chosen)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", file)
