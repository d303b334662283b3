"""What ``--validate`` finds by trying: classes, key stores, keys, users. `transform_checks` has what needs Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from mm2py.config.layers import Side
from mm2py.config.problem import Problem
from mm2py.config.rest import RestSettings
from mm2py.config.settings import MirrorSettings
from mm2py.connectors.plugins import unusable_classes
from mm2py.core.transform.matching import TopicTransforms
from mm2py.model.flow import Flow
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.sealing import SecretsKeyError, check_key_file
from mm2py.rest.access.users import read_users
from mm2py.wire.security.contexts import SecuritySettingsError, server_context, tls_context


def refused_here(settings: MirrorSettings) -> list[Problem]:
    """Return what cannot be used on this machine: classes that cannot be loaded, files that cannot be read."""
    problems: dict[Problem, None] = {}
    written = lines_of(settings)
    for flow in settings.flows:
        for error in unusable_classes(flow):
            line = written.get((str(flow.flow), error.key), "")
            problems[Problem(line, error.key, f"{error.class_name}: {error.reason}", error.hint)] = None
        for side, endpoint in ((Side.SOURCE, flow.source), (Side.TARGET, flow.target)):
            try:
                tls_context(endpoint)
            except SecuritySettingsError as error:
                # Some errors are about all settings of a store; the line with its file is the first to look at.
                key = f"{side.value}.{error.key.replace('*', 'location')}"
                line = written.get((str(flow.flow), key), "")
                problems[Problem(line, f"{error.cluster}.{error.key}", error.problem, error.hint)] = None
    if settings.secrets_key_file:
        try:
            check_key_file(settings.secrets_key_file)
        except SecretsKeyError as error:
            where = written.get(("", "secrets.key.file"), "")
            problems[Problem(where, "secrets.key.file", f"{error.path}: {error.problem}", error.hint)] = None
    return [*problems, *_refused_for_rest(settings.rest, written)]


def _refused_for_rest(rest: RestSettings, written: Mapping[tuple[str, str], str]) -> Iterator[Problem]:
    """Find files without which a node would mirror, but have no status page, or let no user in."""
    if any(listener.scheme == "https" for listener in rest.listeners):
        try:
            server_context("rest", dict(rest.tls), rest.client_auth)
        except SecuritySettingsError as error:
            message = f"{error.key}: {error.problem}"
            yield Problem(written.get(("", "listeners"), ""), "listeners", message, "correct the file or the setting")
    if rest.users_file:
        key, where = "rest.auth.users.file", written.get(("", "rest.auth.users.file"), "")
        try:
            refused = read_users(Path(rest.users_file).read_text(encoding="utf-8"), name=rest.users_file).problems
        except (OSError, ValueError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8"
            refused = (f"{rest.users_file}: {why}",)
        for problem in refused:
            yield Problem(where, key, problem)


def lines_of(settings: MirrorSettings) -> dict[tuple[str, str], str]:
    """Return where each effective key of a flow or cluster is written."""
    return {(row.owner, row.key): row.origin.partition(",")[0] for row in settings.effective}


def transforms_tried(settings: MirrorSettings) -> dict[Flow, tuple[Transform, ...]]:
    """Return the transforms of each enabled flow."""
    return {
        flow.flow: TopicTransforms(flow.source_connector.transforms).tasks for flow in settings.flows if flow.is_enabled
    }


def needs_spark(settings: MirrorSettings) -> bool:
    """Whether there is a statement or function that only Spark can check."""
    return any(it.uses_spark for transforms in transforms_tried(settings).values() for it in transforms)
