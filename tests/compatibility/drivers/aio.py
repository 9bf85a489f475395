"""aiokafka. Every operation runs on a loop of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code
from tests.compatibility.drivers import Got, Placement, Sent, Unsupported, nothing

WAIT_S = 30.0

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 2 * WAIT_S))


def check(response: Any) -> None:
    """aiokafka's admin client leaves errors to its user."""
    for item in getattr(response, "topic_errors", None) or response.topic_error_codes:
        if item[1]:
            raise for_code(item[1])(str(item))


class AioKafka:
    name = "aiokafka"

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self.bootstrap = bootstrap
        self.settings = {"bootstrap_servers": bootstrap, "client_id": client_id}

    def version(self) -> str:
        version: str = aiokafka.__version__
        return version

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
        between: Callable[[], None] = nothing,
    ) -> None:
        async def work() -> None:
            producer = AIOKafkaProducer(
                **self.settings,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks="all",
            )
            await producer.start()
            try:
                half = len(records) // 2
                for number, some in enumerate((records[:half], records[half:])):
                    sent = [
                        await producer.send(
                            topic,
                            record.value,
                            record.key,
                            record.partition,
                            record.timestamp_ms,
                            list(record.headers),
                        )
                        for record in some
                    ]
                    await asyncio.gather(*sent)
                    if number == 0 and half:
                        await asyncio.to_thread(between)
            finally:
                await producer.stop()

        run(work())

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            **self.settings, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    async def _take(self, consumer: AIOKafkaConsumer, count: int) -> list[Got]:
        found: list[Got] = []
        while len(found) < count:
            record = await asyncio.wait_for(consumer.getone(), WAIT_S)
            found.append(
                Got(
                    record.partition,
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    tuple(record.headers),
                )
            )
        return found

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Got]:
        async def work() -> list[Got]:
            async with self._consumer() as consumer:
                consumer.assign([TopicPartition(topic, part) for part in starts])
                for part, offset in starts.items():
                    consumer.seek(TopicPartition(topic, part), offset)
                return await self._take(consumer, count)

        return run(work())

    def seek(self, topic: str, first: int, then: int) -> list[int]:
        async def work() -> list[int]:
            async with self._consumer() as consumer:
                partition = TopicPartition(topic, 0)
                consumer.assign([partition])
                offsets = []
                for offset in (first, then):
                    consumer.seek(partition, offset)
                    offsets.append((await self._take(consumer, 1))[0].offset)
                return offsets

        return run(work())

    def pause(self, topic: str) -> tuple[set[int], set[int]]:
        async def work() -> tuple[set[int], set[int]]:
            async with self._consumer() as consumer:
                partitions = [TopicPartition(topic, part) for part in (0, 1)]
                consumer.assign(partitions)
                consumer.pause(partitions[0])
                before = {record.partition for record in await self._take(consumer, 3)}
                consumer.resume(partitions[0])
                after = {record.partition for record in await self._take(consumer, 3)}
                return before, after

        return run(work())

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        async def work() -> int:
            async with self._consumer() as consumer:
                wanted = TopicPartition(topic, partition)
                found = await consumer.offsets_for_times({wanted: timestamp_ms})
                place = found[wanted]
                assert place is not None
                return int(place.offset)

        return run(work())

    def member_command(self, group: str, topic: str, session_ms: int) -> list[str]:
        names = ["aiokafka", self.bootstrap, group, topic, str(session_ms)]
        return [sys.executable, "-m", "tests.compatibility.members", *names]

    def _admin(self, ask: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, T]]) -> T:
        async def work() -> T:
            admin = AIOKafkaAdminClient(**self.settings)
            await admin.start()
            try:
                return await ask(admin)
            finally:
                await admin.close()

        return run(work())

    def create_topic(self, topic: str, partitions: int, copies: int) -> None:
        check(self._admin(lambda admin: admin.create_topics([NewTopic(topic, partitions, copies)])))

    def topics(self) -> set[str]:
        return set(self._admin(lambda admin: admin.list_topics()))

    def describe(self, topic: str) -> dict[int, Placement]:
        (known,) = self._admin(lambda admin: admin.describe_topics([topic]))
        return {
            part["partition"]: Placement(part["leader"], part["replicas"], part["isr"])
            for part in known["partitions"]
        }

    def add_partitions(self, topic: str, count: int) -> None:
        new = {topic: NewPartitions(total_count=count)}
        check(self._admin(lambda admin: admin.create_partitions(new)))

    def delete_topic(self, topic: str) -> None:
        check(self._admin(lambda admin: admin.delete_topics([topic])))

    def set_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        self._admin(lambda admin: admin.alter_configs([resource]))

    def config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: ""})
        (response,) = self._admin(lambda admin: admin.describe_configs([resource]))
        ((*_, entries),) = response.resources
        return next(str(entry[1]) for entry in entries if entry[0] == name)

    def groups(self) -> set[str]:
        return {group for group, _ in self._admin(lambda admin: admin.list_consumer_groups())}

    def group_offset(self, group: str, topic: str, partition: int) -> int:
        wanted = TopicPartition(topic, partition)
        found = self._admin(lambda admin: admin.list_consumer_group_offsets(group))
        return int(found[wanted].offset)

    def delete_group(self, group: str) -> None:
        raise Unsupported("its admin client has no call to delete groups")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        wanted = {TopicPartition(topic, partition): RecordsToDelete(before_offset=before)}
        self._admin(lambda admin: admin.delete_records(wanted))
