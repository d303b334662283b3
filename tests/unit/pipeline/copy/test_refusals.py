"""What keeps a partition from being copied, when a cluster does."""

from __future__ import annotations

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.refusals import endless, failure_of, kept_out, lacks
from mm2py.wire.error_codes import error_of
from mm2py.wire.security.access import BrokerAccessError, ClusterAccessError
from tests.support.secure_clusters import plain_line


SECURITY = Security("SASL_SSL", (("sasl.jaas.config", plain_line("mm2")),))
SOURCE, TARGET = ClusterEndpoint("A", ("a:1",)), ClusterEndpoint("B", ("b:1",), security=SECURITY)


def test_a_refused_copy_task_says_by_whom() -> None:
    """A cluster that refuses a copy task's login is named, so that it is reported once and not per partition."""
    broker = BrokerAccessError("B", "b:1", "wrong password", "User:mm2", "mend it", may_lock=True)
    cluster = ClusterAccessError("B", "b:1", "wrong password", "User:mm2", "mend it")
    failures = [failure_of(error) for error in (broker, cluster)]

    assert {(failure.cluster, failure.hint) for failure in failures} == {("B", "mend it")}
    assert kept_out(broker) == failures[0]
    assert kept_out(BrokerConnectionError("B", "b:1", "reset")) is None


def test_a_missing_permission_names_the_principal() -> None:
    """What to grant, and to whom, follows from the request and from the endpoint that it went to."""
    failure = failure_of(error_of(31, "B", "InitProducerId"), (SOURCE, TARGET))

    assert failure.cluster == "B"
    assert failure.hint.startswith("grant User:mm2 IDEMPOTENT_WRITE on the cluster B; ")
    assert lacks(SOURCE, "READ", "orders") == "grant User:ANONYMOUS READ on topic orders of cluster A"


def test_a_remote_topic_that_must_not_be_described_says_what_to_grant() -> None:
    """Where its log ends is asked before anything is written."""
    remote = TopicPartition("A.orders", 0)
    failure = endless(remote, error_of(29, "B", "Metadata", "A.orders-0"), TARGET)

    assert (failure.cluster, failure.hint) == ("B", "grant User:mm2 DESCRIBE on topic A.orders of cluster B")


def test_other_errors_are_what_they_are() -> None:
    """What has nothing to do with access keeps its own words and names no cluster."""
    failure = failure_of(error_of(44, "B", "CreateTopics", "no"), (SOURCE, TARGET))

    assert (failure.cluster, failure.error) == ("", "BrokerAnsweredError")
