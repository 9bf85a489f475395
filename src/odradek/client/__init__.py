"""A lean Kafka client of our own on `wire/`: connections, metadata, raw fetch and produce, admin.

It stands on the running event loop alone, so that it works in the simulator as in production, and
chooses versions by what a broker says it serves, so that it works with Apache Kafka as with ours.
"""

from odradek.client.admin import Admin
from odradek.client.blocking_client import Blocking
from odradek.client.client import Client
from odradek.client.consumer import Consumer, ConsumerRecord
from odradek.client.groups import Groups
from odradek.client.partitioner import murmur2, partition_for
from odradek.client.producer import Delivery, Producer, RecordMetadata
from odradek.client.reader import (
    EARLIEST,
    LATEST,
    Batches,
    Isolation,
    OffsetAt,
    PartitionReader,
    TopicRecreated,
    UndecodableBatch,
    offsets_at,
)
from odradek.client.transactional_producer import Membership, TransactionalProducer
from odradek.client.transactions import Transactions
from odradek.client.values import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    ElectionType,
    NewPartitions,
    NewTopic,
    Resource,
    ResourceType,
    check,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "Batches",
    "Blocking",
    "Client",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigSource",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "ElectionType",
    "Groups",
    "Isolation",
    "Membership",
    "NewPartitions",
    "NewTopic",
    "OffsetAt",
    "PartitionReader",
    "Producer",
    "RecordMetadata",
    "Resource",
    "ResourceType",
    "TopicRecreated",
    "TransactionalProducer",
    "Transactions",
    "UndecodableBatch",
    "check",
    "murmur2",
    "offsets_at",
    "partition_for",
]
