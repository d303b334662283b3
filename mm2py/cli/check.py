"""``mm2py check FILE``: what a mirror would meet if it started now: its file, this machine, its clusters. It changes
nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from mm2py.cli.checking import refused_here
from mm2py.cli.command import error_line, print_refused, printed
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.machine_checks import machine_findings
from mm2py.cli.mirror_maker import override, refused_files, verdict_json
from mm2py.cli.parsers import Parser, add_json
from mm2py.cli.positions import read_settings
from mm2py.cli.sheets import Facts, Note, Part, Sheet, count, show, show_json, text
from mm2py.clock import Clock, SystemClock
from mm2py.config.settings import ConfigError, MirrorSettings, Problem
from mm2py.connectors.check import check_flows
from mm2py.core.findings import CheckedCluster, CheckedFlow, Finding, Level
from mm2py.errors import ClusterUnreachableError, Mm2Error
from mm2py.herder.replication_loops import judged


_EXAMPLES = """\
examples:
  mm2py check mm2.properties
  mm2py check mm2.properties --clusters B --json
  mm2py check worker.properties --connector source.json --connector checkpoint.json

Exit code 0: ready, warnings included; 2: something has to be corrected; 3: a cluster does not answer, and nothing else
is wrong. Nothing is written, created or committed; a cluster is asked for at most half a minute.
"""
_SHOWN_FIRST = (Level.ERROR, Level.UNREACHABLE, Level.WARNING, Level.UNKNOWN)


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py check",
        description="Check the file, this machine and the clusters for a mirror that is to start: connections, logins, "
        "rights, topics and groups that match, replication factors, ports, Java and Spark.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="mm2.properties", help="MirrorMaker 2's properties file; or a "
                        "Connect worker's, with connectors in its config topic or named by --connector")  # fmt: skip
    parser.add_argument(
        "--connector", action="append", default=[], type=Path, metavar="FILE",
        help="a connector's file or JSON, as connect-standalone runs it; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--clusters", nargs="+", default=[], metavar="ALIAS", help="only the flows whose target is one of these"
    )
    parser.add_argument(
        "--override", action="append", default=[], type=override, metavar="KEY=VALUE",
        help="a line that is treated as the file's last one; may be given several times",
    )  # fmt: skip
    add_json(parser)
    return parser


@attrs.frozen
class Report:
    """All that was found out."""

    file: str
    #: What is wrong with the file, and notes on it.
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    clusters: tuple[CheckedCluster, ...] = ()
    flows: tuple[CheckedFlow, ...] = ()
    #: Of the machine and the clusters.
    findings: tuple[Finding, ...] = ()

    @property
    def all_findings(self) -> list[Finding]:
        """Return all findings once, those that matter most first."""
        found = dict.fromkeys((*self.findings, *(finding for flow in self.flows for finding in flow.findings)))
        return sorted(found, key=lambda finding: _SHOWN_FIRST.index(finding.level))

    @property
    def exit_code(self) -> ExitCode:
        levels = {finding.level for finding in self.all_findings}
        if self.problems or Level.ERROR in levels:
            return ExitCode.FAILED
        return ExitCode.UNREACHABLE if Level.UNREACHABLE in levels else ExitCode.OK


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py check`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    return printed(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    try:
        report = asyncio.run(check(options, SystemClock()))
    except ClusterUnreachableError as error:  # of a worker, whose connectors are in a topic
        print(error_line(error), file=sys.stderr)
        return ExitCode.UNREACHABLE
    except Mm2Error as error:
        print(error_line(error), file=sys.stderr)
        return ExitCode.FAILED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    if options.json:
        show_json(_as_json(report, (options.file, *options.connector)))
    elif report.problems and not report.clusters:
        print_refused(report.problems, report.notes)
    else:
        show(list(_page(report)))
    return report.exit_code


async def check(options: argparse.Namespace, clock: Clock) -> Report:
    """Check the file, then, if it can be read, the machine and the clusters side by side."""
    name = str(options.file)
    try:
        settings = judged(
            await read_settings(options, clock, targets=options.clusters, overrides=dict(options.override))
        )
    except ConfigError as error:
        return Report(name, error.problems, error.notes)
    async with asyncio.TaskGroup() as tasks:
        machine = tasks.create_task(asyncio.to_thread(machine_findings, settings), name="machine")
        files = tasks.create_task(_refused_files(settings), name="files")
        connections = tasks.create_task(check_flows(settings, clock), name="connections")
    (facts, of_machine), (refused, of_spark), (clusters, flows) = (
        machine.result(), files.result(), connections.result(),
    )  # fmt: skip
    findings = (*of_machine, *of_spark, *(finding for one in clusters for finding in one.findings))
    return Report(
        name, tuple(refused), settings.notes, tuple(facts), tuple(one.checked for one in clusters), flows, findings
    )


async def _refused_files(settings: MirrorSettings) -> tuple[list[Problem], list[Finding]]:
    """Return what `--validate` finds, and why Spark did not start for it."""
    try:
        return await refused_files(settings), []
    except Mm2Error as error:
        return refused_here(settings), [Finding(Level.ERROR, "spark", str(error), error.hint)]


# What is shown.


def _page(report: Report) -> Iterator[Part]:
    state = "no problems" if not report.problems else f"{len(report.problems)} problem(s), see below"
    yield Facts((("file", f"{report.file}: {state}"), *report.facts))
    yield Sheet(
        ("cluster", "state", "id", ">brokers", "protocol", "as"),
        tuple(
            (
                cluster.alias,
                "reachable" if cluster.is_reachable else "unreachable",
                text(cluster.cluster_id),
                count(len(cluster.brokers) or None),
                cluster.protocol,
                cluster.principal,
            )
            for cluster in report.clusters
        ),
    )
    yield Sheet(
        ("flow", "state", ">topics", ">partitions", ">remote topics", ">groups"),
        tuple(
            (
                str(flow.flow),
                flow.state if flow.is_enabled else f"{flow.state}, heartbeats only",
                count(flow.topics),
                count(flow.partitions),
                count(flow.remote_topics),
                count(flow.groups),
            )
            for flow in report.flows
        ),
        empty="no flow",
    )
    lines = [("error", report.file, str(problem)) for problem in report.problems]
    lines += [(finding.level.value, finding.where, str(finding)) for finding in report.all_findings]
    lines += [("note", report.file, str(note)) for note in report.notes]
    if lines:
        yield Sheet(("", "about", "what"), tuple(lines))
    yield Note(_conclusion(report))


def _conclusion(report: Report) -> str:
    if report.exit_code == ExitCode.FAILED:
        return "something has to be corrected before all of this works"
    if report.exit_code == ExitCode.UNREACHABLE:
        return "not every cluster answers; nothing else has to be corrected, as far as can be seen"
    return "ready"


def _as_json(report: Report, files: Sequence[Path]) -> dict[str, Any]:
    def finding(one: Finding) -> dict[str, str]:
        return {**attrs.asdict(one), "level": one.level.value}

    def flow(one: CheckedFlow) -> dict[str, Any]:
        found = {**attrs.asdict(one, recurse=False), "flow": str(one.flow), "state": one.state}
        return found | {"findings": [finding(it) for it in one.findings]}

    return {
        **verdict_json(files, report.exit_code, report.problems, report.notes),
        **dict(report.facts),
        "clusters": [attrs.asdict(one) for one in report.clusters],
        "flows": [flow(one) for one in report.flows],
        "findings": [finding(one) for one in report.findings],
    }
