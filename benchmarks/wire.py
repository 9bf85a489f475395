"""What encoding and decoding cost: CPU milliseconds for messages of a thousand partitions."""

import time
from collections.abc import Callable

from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.schema import Message

TOPICS = 10
PARTITIONS = 100
ROUNDS = 200


def metadata_response() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=1,
            leader_epoch=5,
            replica_nodes=[1, 2, 3],
            isr_nodes=[1, 2, 3],
        )
        for index in range(PARTITIONS)
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=id, host="127.0.0.1", port=9092) for id in (1, 2, 3)
        ],
        cluster_id="odradek",
        controller_id=1,
        topics=[
            MetadataResponseTopic(name=f"topic-{number}", partitions=partitions)
            for number in range(TOPICS)
        ],
    )


def fetch_request() -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, fetch_offset=10**9, partition_max_bytes=2**20)
        for index in range(PARTITIONS)
    ]
    topics = [FetchTopic(topic=f"topic-{n}", partitions=partitions) for n in range(TOPICS)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics)


def fetch_response() -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index,
            high_watermark=10**9,
            last_stable_offset=10**9,
            log_start_offset=0,
            aborted_transactions=[],
            records=bytes(100),
        )
        for index in range(PARTITIONS)
    ]
    topics = [
        FetchableTopicResponse(topic=f"topic-{n}", partitions=partitions) for n in range(TOPICS)
    ]
    return FetchResponse(responses=topics)


def median_cpu_ms(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        work()
        spent.append(time.process_time_ns() - start)
    return sorted(spent)[ROUNDS // 2] / 1e6


def report(message: Message, version: int) -> None:
    encoded = message.encode(version)
    cls = type(message)
    assert cls.decode(encoded, version).encode(version) == encoded
    encode_ms = median_cpu_ms(lambda: message.encode(version))
    decode_ms = median_cpu_ms(lambda: cls.decode(encoded, version))
    print(
        f"{cls.__name__ + f' v{version}':<24}{len(encoded):>9,} bytes"
        f"{encode_ms:>10.2f} ms to encode{decode_ms:>10.2f} ms to decode"
    )


def main() -> None:
    print(f"wire: {TOPICS * PARTITIONS:,} partitions, median CPU time of {ROUNDS} rounds")
    report(metadata_response(), 9)
    report(metadata_response(), 1)
    report(fetch_request(), 11)
    report(fetch_request(), 12)
    report(fetch_response(), 11)
    report(fetch_response(), 12)


if __name__ == "__main__":
    main()
