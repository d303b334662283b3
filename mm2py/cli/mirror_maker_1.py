"""``kafka-mirror-maker --consumer.config … --producer.config … --include …``: the first MirrorMaker's command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.mirror_maker import act, add_common_arguments
from mm2py.cli.parsers import KafkaToolParser
from mm2py.config.importers.mirror_maker_1 import LegacyOptions, import_legacy
from mm2py.config.settings import MirrorSettings, import_settings


def make_parser(prog: str = "kafka-mirror-maker") -> argparse.ArgumentParser:
    parser = KafkaToolParser(
        prog=prog, description="Continuously copy data between two Kafka clusters.", allow_abbrev=False
    )
    # KIP-382 and many wikis use the short names.
    parser.add_argument(
        "--consumer.config", "--consumer", dest="consumer", type=Path, required=True, metavar="FILE",
        help="the consumer's settings: the source cluster and the group.id at whose offsets the mirror starts",
    )  # fmt: skip
    parser.add_argument(
        "--producer.config", "--producer", dest="producer", type=Path, required=True, metavar="FILE",
        help="the producer's settings: the target cluster",
    )  # fmt: skip
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--include", metavar="REGEX", help="the topics to mirror, a Java regex; a comma means |")
    topics.add_argument("--whitelist", metavar="REGEX", help="former name of --include")
    parser.add_argument("--num.streams", dest="num_streams", metavar="N", help="number of copy tasks; default 1")
    parser.add_argument(
        "--offset.commit.interval.ms",
        dest="commit_interval",
        metavar="MS",
        help="how often positions are written; default 60000",
    )
    parser.add_argument(
        "--abort.on.send.failure", dest="abort", metavar="BOOL", help="accepted: failed sends are always retried"
    )
    parser.add_argument("--consumer.rebalance.listener", dest="listener", metavar="CLASS", help="accepted: no effect")
    parser.add_argument("--rebalance.listener.args", dest="listener_args", metavar="ARGS", help="accepted: no effect")
    parser.add_argument("--message.handler", dest="handler", metavar="CLASS", help="refused: records stay as they are")
    parser.add_argument("--message.handler.args", dest="handler_args", metavar="ARGS", help="belongs to the handler")
    parser.add_argument("--new.consumer", action="store_true", help="accepted: there is no other one")
    parser.add_argument(
        "--source.alias", dest="alias", metavar="NAME",
        help="the name under which positions are kept at the target; the consumer's group.id if not given",
    )  # fmt: skip
    add_common_arguments(parser)
    return parser


def main(arguments: Sequence[str] | None = None, *, prog: str = "kafka-mirror-maker") -> int:
    options = make_parser(prog).parse_args(arguments)
    wanted = LegacyOptions(
        consumer_config=options.consumer,
        producer_config=options.producer,
        include=options.whitelist if options.include is None else options.include,
        include_option="--whitelist" if options.include is None else "--include",
        num_streams=options.num_streams,
        offset_commit_interval_ms=options.commit_interval,
        abort_on_send_failure=options.abort,
        consumer_rebalance_listener=options.listener,
        message_handler=options.handler,
        source_alias=options.alias,
    )

    def load() -> MirrorSettings:
        return import_settings(import_legacy(wanted), overrides=dict(options.override))

    return act(options, load, files=(options.consumer, options.producer))


if __name__ == "__main__":
    sys.exit(main())
