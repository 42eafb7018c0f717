"""What is in a topic, by one trusted reader that asks the cluster itself: librdkafka, each partition from its start."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.kit.client_contract import checksum
from tests.kit.log_check import Line

PATIENCE_S = 60.0


def read_log(bootstrap: str, topic: str, partitions: int, *, isolation: str = "read_committed") -> list[Line]:
    """Every record up to what are the ends now, partition by partition; PLAINTEXT.

    Transactions that are open now are waited for.
    :raises AssertionError: it did not come to the ends in time.
    """
    common = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    topic_partitions = [TopicPartition(topic, number, 0) for number in range(partitions)]
    everything = Consumer({**common, "isolation.level": "read_uncommitted"})
    ends = {one.partition: everything.get_watermark_offsets(one, timeout=30)[1] for one in topic_partitions}
    everything.close()
    reader = Consumer({**common, "isolation.level": isolation, "enable.partition.eof": True})
    reader.assign(topic_partitions)
    left = {number for number, end in ends.items() if end > 0}
    lines: list[Line] = []
    deadline = time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline, f"the ends of {sorted(left)} were not reached"
        for message in reader.consume(10_000, 0.05):
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            error = message.error()
            if error is None:
                key = (message.key() or b"-").decode()
                lines.append(Line(partition, offset, key, checksum(message.value() or b"")))
                if offset + 1 >= ends[partition]:
                    left.discard(partition)
            elif error.code() == KafkaError._PARTITION_EOF:
                # At the end of what is committed, which includes the markers of transactions.
                if offset >= ends[partition]:
                    left.discard(partition)
            else:
                assert error.retriable(), error
    reader.close()
    return sorted(lines, key=lambda line: line.partition)
