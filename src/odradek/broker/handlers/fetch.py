"""Fetch (1), v0–v17. Records for consumers and followers, with fetch sessions from v7 (KIP-227).

A session's answer names only partitions with something to say; any other names all that were asked
for, in their order. Consumers of v11+ may be sent to a replica in their own rack. v13+ names topics
by id, at every inter-broker protocol: an id that is not known here is answered with
UNKNOWN_TOPIC_ID, and looked up again at each request of a session. v16+ is told where a new leader
listens. docs/spec/controller-and-replication.md section 5.5,
docs/spec/interchange-with-apache-kafka.md section A.3, docs/spec/protocol-ladder.md section 2.6.
"""

from uuid import UUID

from odradek.broker.fetch_sessions import FetchSession
from odradek.broker.handler import Broker, RequestContext
from odradek.replica.leader.fetch_state import FetchParams, FetchSet, NamedById, PartitionAnswer
from odradek.replica.manager import ReplicaManager
from odradek.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from odradek.wire.batch import CODEC_MASK, attribute_bits
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    replica_id_of,
)
from odradek.wire.reply import Reply
from odradek.wire.schema import size_bytes
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

IDS_SINCE = 13
LEADERS_SINCE = 16
# A follower names every partition that it has from this leader.
ELEMENTS_MAX = 100_000
LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(broker: Broker, request: FetchRequest, context: RequestContext) -> Reply[FetchResponse]:
    version = context.header.api_version
    try:
        fetch_set, session = broker.fetch_sessions.open(request, by_id=version >= IDS_SINCE)
    except KafkaError as error:
        return Reply.now(FetchResponse(error_code=error.error))
    context.is_follower = fetch_set.replica_id >= 0
    is_changed = bool(request.topics)
    if fetch_set.unresolved and fetch_set.resolve(broker.cache.topic_name):
        is_changed = True
    refused = _refused(fetch_set, session, context, is_changed=is_changed)
    if refused and not fetch_set.items:
        return Reply.now(FetchResponse(responses=_by_topic(refused)))
    bytes_max = _bytes_max(broker, request, context)
    params = FetchParams(
        replica_id=fetch_set.replica_id,
        max_wait_ms=request.max_wait_ms,
        # More than may be sent would never be found, and always be waited for.
        min_bytes=min(request.min_bytes, bytes_max),
        max_bytes=bytes_max,
        replica_epoch=-1 if request.replica_state is None else request.replica_state.replica_epoch,
        read_committed=request.isolation_level == 1,
        rack_id=request.rack_id,
        may_read_follower=version >= 11,
        hard_limit=version < 3,
        room=broker.connections.response_budget.share,
    )
    # The first batch comes whole, however little was asked for.
    expected_bytes = max(
        bytes_max, 0 if version < 3 else broker.config.integer("message.max.bytes")
    )
    return (
        broker.replicas.fetch(params, fetch_set)
        .while_waiting(expected_bytes, lambda: _abandon(fetch_set, session))
        .map(lambda found: _finish(broker, context, fetch_set, session, found + refused))
    )


def _refused(
    fetch_set: FetchSet,
    session: FetchSession | None,
    context: RequestContext,
    *,
    is_changed: bool,
) -> list[PartitionAnswer]:
    """Takes partitions that the client may not read out of the fetch; their answers.

    A session's topics are looked at again when ACLs have changed, or what the session has of them:
    the request names any, or an id has become known.
    """
    authorizer = context.may.authorizer
    if authorizer is None:
        return []
    if session is not None:
        if session.acl_version == authorizer.version and not is_changed:
            return []
        session.acl_version = authorizer.version
    is_follower = fetch_set.replica_id >= 0
    asked = (
        (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        if is_follower
        else (AclOperation.READ, ResourceType.TOPIC)
    )
    known: dict[str, bool] = {}
    refused: list[PartitionAnswer] = []
    for key, item in list(fetch_set.items.items()):
        if not item.is_resolved and not is_follower:
            continue  # There is no topic to be refused yet.
        name = CLUSTER_NAME if is_follower else item.tp.topic
        if name not in known:
            known[name] = context.may.check(*asked, name) is None
        if not known[name]:
            fetch_set.remove(key)
            data = PartitionData(
                partition_index=item.tp.partition,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                high_watermark=-1,
                records=b"",
            )
            refused.append((item.name, data))
    return refused


def _bytes_max(broker: Broker, request: FetchRequest, context: RequestContext) -> int:
    bytes_max = min(request.max_bytes, broker.fetch_max)
    if broker.quotas.are_set and replica_id_of(request) < 0:
        return int(min(bytes_max, broker.quotas.fetch_bytes_max(context)))
    return bytes_max


def _abandon(fetch_set: FetchSet, session: FetchSession | None) -> None:
    """The fetcher has gone while it waited. Its session it may still come back to."""
    if session is None or session.is_new:
        fetch_set.close()
    elif fetch_set.parked is not None:
        fetch_set.parked.cancel()


def _finish(
    broker: Broker,
    context: RequestContext,
    fetch_set: FetchSet,
    session: FetchSession | None,
    answers: list[PartitionAnswer],
) -> FetchResponse:
    version = context.header.api_version
    is_follower = fetch_set.replica_id >= 0
    if broker.quotas.are_set and not is_follower:
        byte_count = sum(size_bytes(data.records or b"") for _, data in answers)
        if not broker.quotas.fetched(context, byte_count):
            return _withheld(fetch_set, session, answers)
    session_id = 0
    if session is not None:
        session_id = broker.fetch_sessions.keep(session) if session.is_new else session.id
    context.may_have_errors = _count(broker.replicas, answers, is_follower)
    for _, data in answers:
        if data.records is None:
            data.records = b""
        if version < 10 and data.records and not is_follower:
            _refuse_zstd(data)
    response = FetchResponse(session_id=session_id, responses=_by_topic(answers))
    if version >= LEADERS_SINCE and context.may_have_errors:
        response.node_endpoints = _name_leaders(broker, context, answers)
    return response


def _name_leaders(
    broker: Broker, context: RequestContext, answers: list[PartitionAnswer]
) -> list[NodeEndpoint]:
    """Say who leads the partitions that this broker does not (KIP-951); returns their endpoints."""
    leaders: dict[int, NodeEndpoint] = {}
    listener = context.connection.listener
    for of, data in answers:
        known = broker.cache.partition(of.topic, of.partition)
        if data.error_code not in LEADER_ERRORS or known is None:
            continue
        data.current_leader = LeaderIdAndEpoch(
            leader_id=known.leader, leader_epoch=known.leader_epoch
        )
        endpoint = broker.cache.endpoint(known.leader, listener)
        if endpoint is not None:
            rack = broker.cache.rack(known.leader)
            leaders[known.leader] = NodeEndpoint(
                node_id=known.leader, host=endpoint[0], port=endpoint[1], rack=rack
            )
    return list(leaders.values())


def _count(replicas: ReplicaManager, answers: list[PartitionAnswer], is_follower: bool) -> bool:
    """Counts what is sent: a fetch that waits is read more than once. Returns whether anything
    failed."""
    has_errors = False
    traffic = replicas.traffic
    for named, data in answers:
        if data.error_code:
            has_errors = True
            if not is_follower:
                traffic.fetch_failed(named.topic)
            continue
        byte_count = size_bytes(data.records) if data.records else 0
        if not is_follower:
            counters = traffic.of(named.topic)
            counters.fetches += 1
            counters.bytes_out += byte_count
        elif byte_count:
            traffic.replication_bytes_out += byte_count
        else:
            continue
        tp = named if isinstance(named, TopicPartition) else TopicPartition(*named[:2])
        partition = replicas.partitions.get(tp)
        if partition is None:
            continue  # It has gone since it was read.
        load = partition.replica.load
        if is_follower:
            load.follower_out += byte_count
        else:
            load.requests += 1
            load.bytes_out += byte_count
    return has_errors


def _by_topic(answers: list[PartitionAnswer]) -> list[FetchableTopicResponse]:
    """The answers in their order. Topics are named by name or by id, never both: a version has room
    for one."""
    topics: list[FetchableTopicResponse] = []
    last: tuple[str, UUID] | None = None
    for named, data in answers:
        topic = ("", named.topic_id) if isinstance(named, NamedById) else (named.topic, NO_TOPIC_ID)
        if topic == last:
            topics[-1].partitions.append(data)
        else:
            last = topic
            topics.append(
                FetchableTopicResponse(topic=topic[0], topic_id=topic[1], partitions=[data])
            )
    return topics


def _withheld(
    fetch_set: FetchSet, session: FetchSession | None, answers: list[PartitionAnswer]
) -> FetchResponse:
    """Nothing yet: the client is over its quota. What was not sent is sent next time."""
    if session is None or session.is_new:
        fetch_set.close()
        return FetchResponse()
    fetch_set.untell(answers)
    return FetchResponse(session_id=session.id)


def _refuse_zstd(data: PartitionData) -> None:
    """A consumer older than zstd gets an error instead of records that it cannot read."""
    records = data.records
    if isinstance(records, list):
        records = records[0]
    if (
        isinstance(records, bytes | memoryview)
        and attribute_bits(records) & CODEC_MASK == Codec.ZSTD
    ):
        data.error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        data.records = b""
