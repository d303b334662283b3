"""Rows of the key table: what a flow mirrors and how its task groups work."""

from __future__ import annotations

from mm2py.config.keys.row import (
    Key,
    Kind,
    Place,
    Section,
    at_least,
    at_least_1_or,
    not_empty,
    number_or_default,
    one_of,
    one_of_in_any_case,
    port_from,
    remote_factor,
    timestamp,
    topic_text,
    topic_text_or_empty,
    without_blanks,
)


_OR_NEVER = "0 or less is never."
_JAVA = "org.apache.kafka.connect.mirror."
_NEW_NAMES = "metrics have their names of legacy; Prometheus can rename them: mm2py docs metrics#kafka-43s-names"
_ALIAS = "clusters' alias is used; Java would use this one for positions, checkpoints and offset syncs"

_FLOW = Section(
    "Flows",
    "Written for one flow (`A->B.topics`) or, where the table says so, at the top level for all flows.",
    (
        Key("enabled", Kind.BOOLEAN, "false", Place.FLOW,
            "Mirror this flow's topics. At the top level it enables every flow that emits heartbeats."),
        Key("tasks.max", Kind.INT, "1", Place.FLOW,
            "At most this many copy tasks share the flow's partitions; the first setting to raise for throughput.",
            check=at_least(1)),
        Key("admin.timeout.ms", Kind.LONG, "60000", Place.FLOW,
            "Time limit of one round of a periodic job: refreshing topics, listing consumer groups, synchronising "
            "topic configs, ACLs and group offsets. A round that takes longer is abandoned, logged as `step_failed`, "
            "and retried.", check=at_least(1)),
        Key("replication.policy.class", Kind.CLASS, _JAVA + "DefaultReplicationPolicy", Place.FLOW,
            "How remote topics are named: `default` (`A.orders`), `identity` (`orders`), Java's class names of the "
            "two, or the dotted path of a Python class.", check=not_empty),
        Key("replication.policy.separator", Kind.STRING, ".", Place.FLOW,
            "Separator between alias and topic in remote and internal names.", check=topic_text_or_empty,
            keeps_blanks=True),
        Key("replication.policy.internal.topic.separator.enabled", Kind.BOOLEAN, "true", Place.FLOW,
            "`false` keeps `.` in the names of internal topics when the separator is another."),
        Key("remote.topic.prefix", Kind.STRING, "", Place.FLOW,
            "Text before a topic's name in that of its remote topic, after the alias if the policy adds one: `dc1-` "
            "makes `dc1-orders` with `identity`, `A.dc1-orders` with `default`. Heartbeats topics do without. Topics "
            "of the source that have the flow's prefix and suffix are not mirrored again (not in Java MirrorMaker).",
            check=topic_text_or_empty, aliases=("destination.topic.name.prefix",)),
        Key("remote.topic.suffix", Kind.STRING, "", Place.FLOW,
            "Text after a topic's name, in the same way: `.mirror` makes `orders.mirror` with `identity`.",
            check=topic_text_or_empty, aliases=("destination.topic.name.suffix",)),
    ),
)  # fmt: skip

_SOURCE = Section(
    "Topics and their records",
    "",
    (
        Key("topics", Kind.PATTERNS, ".*", Place.FLOW,
            "Names and regular expressions (Java's dialect, the whole name must match) of the topics to mirror. "
            "An empty list mirrors nothing.", aliases=("topics.whitelist",), check=without_blanks),
        Key("topics.exclude", Kind.PATTERNS, r"mm2.*\.internal, .*\.replica, __.*", Place.FLOW,
            "Topics to exclude; takes precedence over `topics`.", aliases=("topics.blacklist",), check=without_blanks),
        Key("topic.filter.class", Kind.CLASS, _JAVA + "DefaultTopicFilter", Place.FLOW,
            "Filter by name: `default`, Java's class name of it, or the dotted path of a Python class.",
            check=not_empty),
        Key("refresh.topics.enabled", Kind.BOOLEAN, "true", Place.FLOW,
            "Look for new topics and partitions at the source while running."),
        Key("refresh.topics.interval.seconds", Kind.LONG, "600", Place.FLOW,
            "How often everything about topics is read; 0 or less is never. Unless it is set, the source's topics are "
            "listed every 30 s (less often if a listing takes longer than 0.15 s), and new ones are mirrored at once."),
        Key("replication.factor", Kind.STRING, "2", Place.FLOW,
            "Replication factor of new remote topics, 1 or more; -1 takes the target brokers' default, "
            "`source` the source topic's own, at most the number of target brokers, also of those that are down (not "
            "in Java MirrorMaker).",
            check=remote_factor),
        Key("heartbeats.replication.enabled", Kind.BOOLEAN, "true", Place.FLOW,
            "Mirror heartbeats topics regardless of `topics`."),
        Key("config.properties.exclude", Kind.PATTERNS,
            "follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
            "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
            "log.message.timestamp.after.max.ms, message.timestamp.type, unclean.leader.election.enable, "
            "min.insync.replicas", Place.FLOW,
            "Topic configurations that are never copied. Replication throttles never are, regardless of this list; "
            "the brokers' names of the timestamp limits also cover the topics'. A limit listed by its topic-level "
            "name is not raised either if the target's brokers accept less than the source.",
            aliases=("config.properties.blacklist",), check=without_blanks),
        Key("config.property.filter.class", Kind.CLASS, _JAVA + "DefaultConfigPropertyFilter", Place.FLOW,
            "Filter by name: `default`, Java's class name of it, or the dotted path of a Python class.",
            check=not_empty),
        Key("use.defaults.from", Kind.STRING, "target", Place.FLOW_ONLY,
            "Whose defaults apply to configs that a source topic does not set: the target brokers', or the source's, "
            "which are then set on the remote topic.", check=one_of("source", "target")),
        Key("sync.topic.configs.enabled", Kind.BOOLEAN, "true", Place.FLOW,
            "Keep the configurations of remote topics in step with their sources'."),
        Key("sync.topic.configs.interval.seconds", Kind.LONG, "600", Place.FLOW,
            f"How often configurations are synchronised; {_OR_NEVER}"),
        Key("sync.topic.configs.by.hand", Kind.STRING, "keep", Place.FLOW,
            "What to do with configurations that an operator set on a remote topic: `keep` them, or `overwrite` them "
            "as Java MirrorMaker does, which does not have this setting.", check=one_of("keep", "overwrite")),
        Key("sync.topic.acls.enabled", Kind.BOOLEAN, "true", Place.FLOW,
            "Give principals that may read a topic at the source the same permission on its remote topic."),
        Key("sync.topic.acls.interval.seconds", Kind.LONG, "600", Place.FLOW,
            f"How often ACLs are synchronised; {_OR_NEVER}"),
        Key("sync.topic.acls.delete.enabled", Kind.BOOLEAN, "false", Place.FLOW,
            "Delete ACLs that mm2py created at the target once they are gone at the source. Java MirrorMaker never "
            "does."),
        Key("sync.topic.acls.prefixed.enabled", Kind.BOOLEAN, "false", Place.FLOW,
            "Copy prefixed ACLs too. Java MirrorMaker skips them."),
        Key("emit.offset-syncs.enabled", Kind.BOOLEAN, "true", Place.FLOW,
            "Write offset syncs, for Java MirrorMaker and its tools. mm2py translates offsets without them."),
        Key("offset-syncs.topic.location", Kind.STRING, "source", Place.FLOW,
            "The cluster that stores the offset syncs, `source` or `target`. With `target` the source is only read.",
            check=one_of("source", "target")),
        Key("offset-syncs.topic.replication.factor", Kind.SHORT, "3", Place.FLOW,
            "Replication factor of the offset syncs topic; -1 takes the brokers' default.", check=number_or_default),
        Key("offset.lag.max", Kind.LONG, "100", Place.FLOW,
            "After this many records of a partition an offset sync is written at once. A partition with fewer records "
            "gets one after it was idle for an epoch.", check=at_least(0)),
    ),
)  # fmt: skip

_CHECKPOINTS = Section(
    "Consumer groups and heartbeats",
    "",
    (
        Key("groups", Kind.PATTERNS, ".*", Place.FLOW,
            "Names and regular expressions of the consumer groups whose offsets are translated. Only consumer groups "
            "of either protocol, or groups that merely commit; not Connect's, share or streams groups.",
            aliases=("groups.whitelist",)),
        Key("groups.exclude", Kind.PATTERNS, "console-consumer-.*, connect-.*, __.*", Place.FLOW,
            "Groups to exclude; takes precedence over `groups`.", aliases=("groups.blacklist",)),
        Key("group.filter.class", Kind.CLASS, _JAVA + "DefaultGroupFilter", Place.FLOW,
            "Filter by name: `default`, Java's class name of it, or the dotted path of a Python class.",
            check=not_empty),
        Key("refresh.groups.enabled", Kind.BOOLEAN, "true", Place.FLOW,
            "Look for new groups at the source while running."),
        Key("refresh.groups.interval.seconds", Kind.LONG, "600", Place.FLOW,
            "How often groups are listed; 0 or less is never. Unless it is set, every 30 s."),
        Key("emit.checkpoints.enabled", Kind.BOOLEAN, "true", Place.FLOW,
            "Translate the groups' offsets and write them as checkpoints. Without it their offsets are not synced "
            "either."),
        Key("emit.checkpoints.interval.seconds", Kind.LONG, "60", Place.FLOW,
            "How often checkpoints are written; 0 means every half second, less is never."),
        Key("sync.group.offsets.enabled", Kind.BOOLEAN, "false", Place.FLOW,
            "Commit translated offsets at the target, for groups without members there."),
        Key("sync.group.offsets.interval.seconds", Kind.LONG, "60", Place.FLOW,
            f"How often offsets are committed; {_OR_NEVER}"),
        Key("sync.group.offsets.rewind.enabled", Kind.BOOLEAN, "false", Place.FLOW,
            "Also set a group's offsets at the target back when it goes back at the source. Java never does, and "
            "consumers that move back and forth would read records twice."),
        Key("checkpoints.topic.replication.factor", Kind.SHORT, "3", Place.FLOW,
            "Replication factor of the checkpoints topic.", check=number_or_default),
        Key("emit.heartbeats.enabled", Kind.BOOLEAN, "true", Place.FLOW,
            "Write heartbeats to the topic `heartbeats` of the target cluster, for flows that are not enabled too."),
        Key("emit.heartbeats.interval.seconds", Kind.LONG, "1", Place.FLOW,
            "How often heartbeats are written; less than 0 is never, and 0 counts as 1."),
        Key("heartbeats.topic.replication.factor", Kind.SHORT, "3", Place.FLOW,
            "Replication factor of the heartbeats topic; -1 takes the brokers' default.", check=number_or_default),
    ),
)  # fmt: skip

_COPY = Section(
    "Copy tasks",
    "Settings of mm2py that Java MirrorMaker does not have.",
    (
        Key("copy.epoch.ms", Kind.LONG, "10000", Place.FLOW,
            "Length of an epoch: how often a copy task reports what it has copied. Figures, positions and translated "
            "offsets are that old. On a Spark cluster whose executors do not reach this process, changes wait for the "
            "end of an epoch. An epoch that has to connect, or to resume, may take up to 5 seconds longer.",
            check=at_least(50)),
        Key("copy.drain.ms", Kind.LONG, "5000", Place.FLOW,
            "How long to wait for requests in flight at an epoch's end. A lost copy task's partitions are not "
            "planned again before this time has passed.", check=at_least(100)),
        Key("copy.plans.port", Kind.INT, "0", Place.TOP,
            "On a Spark cluster, the port of this process where executors get plans: so a copy task need not be a new "
            "Spark job in each epoch, and ends one at once when a change waits. 0 is any free port, -1 none.",
            check=port_from(-1)),
        Key("copy.buffer.bytes", Kind.LONG, "33554432", Place.FLOW,
            "Bytes of batches that one copy task may buffer. When the buffer is full, it stops fetching.",
            check=at_least(65536)),
        Key("copy.partition.buffer.bytes", Kind.LONG, "4194304", Place.FLOW,
            "Bytes of batches of one partition that may be buffered.", check=at_least(65536)),
        Key("copy.coalesce.below.bytes", Kind.INT, "2048", Place.FLOW,
            "Batches smaller than this that wait in a backlog are merged; 0 disables merging.", check=at_least(0)),
        Key("catch.up.latency.ms", Kind.LONG, "-1", Place.FLOW,
            "How many milliseconds longer the target's brokers may take to answer because partitions catch up. If they "
            "take longer, those that are behind are copied more slowly, the others as usual; 10 is hardly noticed by "
            "other producers. -1 copies a backlog as fast as possible.", check=at_least_1_or("no bound")),
        Key("copy.start.group", Kind.STRING, "", Place.FLOW,
            "Another mirror's consumer group at the source: a partition without a position starts at this group's "
            "committed offset, or without one, as `start.timestamp` or `auto.offset.reset` says."),
        Key("start.timestamp", Kind.STRING, "", Place.FLOW,
            "Where a partition without a position starts, instead of `auto.offset.reset`: at the first record whose "
            "timestamp is this or later, at the end if there is none. `2026-11-01T00:00:00Z`, another zone as in "
            "`+02:00`, or milliseconds since 1970. Partitions that have a position continue there, whatever this says; "
            "what `copy.on.source.recreated` and its like decide does not depend on it either.", check=timestamp),
        Key("copy.on.source.recreated", Kind.STRING, "fail", Place.FLOW,
            "What to do when a source topic was deleted and created again: `fail` stops its partitions, unless nothing "
            "is missing and nothing was copied or the remote topic was deleted, too; `earliest` appends the new topic "
            "to the old one's records, `latest` only its new records, `re-create` deletes the remote topic with all "
            "its records and copies the new topic into a new one.",
            check=one_of("fail", "earliest", "latest", "re-create")),
        Key("copy.on.source.expired", Kind.STRING, "earliest", Place.FLOW,
            "Where to continue when retention removed records before they were copied: at the `earliest` record that "
            "is left, at the `latest`, or not at all (`fail`). They are lost either way, and more are lost while "
            "nothing is copied.",
            check=one_of("earliest", "latest", "fail")),
        Key("copy.on.source.truncated", Kind.STRING, "continue", Place.FLOW,
            "What to do when the source has lost records that were copied, as after an unclean leader election: "
            "`continue` from the first record that differs from what was copied, copy everything from the `earliest`, "
            "continue at the `latest`, or stop (`fail`). Records that only the target has stay there.",
            check=one_of("continue", "earliest", "latest", "fail")),
        Key("copy.on.target.rewound", Kind.STRING, "copy-again", Place.FLOW,
            "What to do when the target has lost records that were copied, or the remote topic was deleted: "
            "`copy-again` what it lacks, as far as the source has it, `continue` without it, or stop (`fail`).",
            check=one_of("copy-again", "continue", "fail")),
        Key("copy.on.second.node", Kind.STRING, "refuse", Place.FLOW,
            "What to do while another node, or Java MirrorMaker, runs the flow: `refuse` stands by and takes over "
            "when that node ends, `warn` logs it and copies everything again.", check=one_of("refuse", "warn")),
    ),
)  # fmt: skip

_EXACTLY_ONCE = Section(
    "Exactly once, per flow",
    "",
    (
        Key("exactly.once.support", Kind.STRING, "requested", Place.FLOW_ONLY,
            "`required` refuses to run if `exactly.once.source.support` is not `enabled` for the target, or the "
            "source is read without `consumer.isolation.level=read_committed`.",
            check=one_of_in_any_case("requested", "required")),
        Key("offsets.storage.topic", Kind.STRING, None, Place.FLOW_ONLY,
            "Topic that stores this flow's positions in place of `offset.storage.topic`; Java MirrorMaker writes both, "
            "and believes this one.", check=topic_text),
    ),
)  # fmt: skip

SECTIONS = (_FLOW, _SOURCE, _COPY, _CHECKPOINTS, _EXACTLY_ONCE)
