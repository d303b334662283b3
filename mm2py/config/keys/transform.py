"""Rows of the key table: transforms of records."""

from __future__ import annotations

from mm2py.config.keys.row import Key, Kind, Place, Section, number_or_default, one_of, topic_text_or_empty


TRANSFORMS = Section(
    "Transforms, per flow",
    "Topics with a transform are mirrored record by record; all others unopened. See "
    "[transforms](transforms.md). `A->B.transform.orders.sql` applies to the topic `orders`, "
    "`A->B.transform.shop-.*.sql` to all topics that the expression matches (Java's dialect, the whole name), "
    "`A->B.transform.sql` to every topic. A topic's own name takes precedence over expressions, those apply in the "
    "order of the file, and the whole flow comes last. The names from `transforms` on are Kafka Connect's; these "
    "steps come after the statement or function.",
    (
        Key("transform.*", Kind.STRING, None, Place.FLOW_ONLY,
            "`….sql`: a statement of Spark SQL over the table `records`. `….function`: a Python function as "
            "`module:function`, which gets a DataFrame and returns one."),
        Key("transforms", Kind.LIST, "", Place.FLOW, "Names of single message transforms, in order."),
        Key("transforms.*", Kind.STRING, None, Place.FLOW_ONLY,
            "Settings of single message transforms: `transforms.NAME.type`, `.predicate`, `.negate`, and those of the "
            "type."),
        Key("predicates", Kind.LIST, "", Place.FLOW, "Names of predicates for transforms."),
        Key("predicates.*", Kind.STRING, None, Place.FLOW_ONLY,
            "Settings of predicates: `predicates.NAME.type` and others."),
        Key("errors.tolerance", Kind.STRING, "none", Place.FLOW,
            "What to do with a record that a transform cannot process: `none` stops its topic, `all` skips the "
            "record.", check=one_of("none", "all")),
        Key("errors.deadletterqueue.topic.name", Kind.STRING, "", Place.FLOW,
            "A topic at the target for the records that `errors.tolerance` = `all` skips, unchanged; empty for none. "
            "Connect supports this for sinks only.", check=topic_text_or_empty),
        Key("errors.deadletterqueue.topic.replication.factor", Kind.SHORT, "3", Place.FLOW,
            "Replication factor of that topic when it is created; -1 takes the brokers' default.",
            check=number_or_default),
        Key("errors.deadletterqueue.context.headers.enable", Kind.BOOLEAN, "false", Place.FLOW,
            "Add headers, `__connect.errors.*`, with the origin of such a record and the error."),
    ),
)  # fmt: skip
