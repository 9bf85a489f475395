"""Where everything is in the tree.

docs/spec/controller-and-replication.md section 4.1,
docs/spec/interchange-with-apache-kafka.md section B.1.
"""

from enum import StrEnum

from odradek.wire.topics import TopicPartition

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CONFIG_CHANGES = "/config/changes"
CLUSTER_ID = "/cluster/id"
PRODUCER_IDS = "/latest_producer_id_block"
FEATURES = "/feature"

ISR_CHANGE_PREFIX = "isr_change_"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"
CONFIG_CHANGE_PREFIX = "config_change_"

DEFAULT_ENTITY = "<default>"


class ConfigKind(StrEnum):
    """What a dynamic configuration can be of."""

    TOPICS = "topics"
    CLIENTS = "clients"
    USERS = "users"
    BROKERS = "brokers"
    IPS = "ips"


# Created by every broker at start, with null data, and their parents with them.
PERSISTENT = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    *(f"/config/{kind}" for kind in ConfigKind),
)


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(of: TopicPartition) -> str:
    return f"{TOPICS}/{of.topic}/partitions/{of.partition}"


def partition_state(of: TopicPartition) -> str:
    return f"{TOPICS}/{of.topic}/partitions/{of.partition}/state"


def partition_of_state(path: str) -> TopicPartition:
    """Whose state node this is: the path of a watch event, read back."""
    _, _, _, topic_name, _, number, _ = path.split("/")
    return TopicPartition(topic_name, int(number))


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def configs(kind: str) -> str:
    return f"/config/{kind}"


def config(kind: str, entity: str) -> str:
    """``entity`` is sanitized; a user's client is ``alice/clients/app`` of kind users."""
    return f"/config/{kind}/{entity}"


def sanitize(entity: str) -> str:
    """A user, client or ip as a node's name: as Java's URL encoder, and no ``*`` or ``+``."""
    from urllib.parse import quote  # seldom needed, and a broker must start fast

    name = quote(entity, safe="").replace("~", "%7E")
    # No encoder touches dots, and these two are no names of nodes.
    return name.replace(".", "%2E") if name in (".", "..") else name


def desanitize(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name)
