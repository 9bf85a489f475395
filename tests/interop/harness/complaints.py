"""What brokers complain of in their logs, and which of it Apache Kafka's also say to each other.

Members are killed, stopped and held back, and Kafka reports each time that it cannot reach one. The
patterns below are those it also prints in the same tests when every member is Apache Kafka. What
else it says is about us: a request it could not read, an answer it did not expect, a file it did
not like.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ENTRY = re.compile(r"\[[^\]]*\] (?P<level>WARN|ERROR|INFO) (?P<logger>\S+) - (?P<text>.*)")
# A process that was killed may not have got to the exception.
GONE = r"[^\n]*($|\njava\.io\.IOException: Connection to \S+ (\(id: \d+|was disconnected))"

# Logger, and what the entry's first line says, with the exception in the next line if there is one.
USUAL = [
    (r"clients\.NetworkClient", r"Connection to node \d+ .* could not be established"),
    (r"RequestSendThread", r"connection to broker .* was unsuccessful" + GONE),
    (r"RequestSendThread", r"fails to send (a )?request" + GONE),
    (r"RequestSendThread", r"fails to send (a )?request.*\njava\.lang\.InterruptedException"),
    (r"RequestSendThread", r"\n\S+DisconnectException: NetworkClient is no longer active"),
    (r"ReplicaFetcherThread", r"Error in response for fetch request" + GONE),
    # Topics have got ids: a fetch session by name is continued by id, refused, and opened again.
    (r"ReplicaFetcherThread", r"\n\S+FetchSessionTopicIdException: The fetch session encountered"),
    # A leader that asks whether a transaction is open, and whom it asks is killed meanwhile.
    (r"AddPartitionsToTxnManager", r"failed for node \d+ with a network exception"),
    (r"RemoteLeaderEndPoint", r"sending leader epoch request" + GONE),
    (r"RemoteLeaderEndPoint", r"sending leader epoch request.*Client was shutdown before response"),
    # The leader has heard of its new epoch before the follower.
    (r"ReplicaFetcherThread", r"Partition \S+ marked as failed$"),
    (r"ReplicaFetcherThread", r"Received UNKNOWN_TOPIC_(OR_PARTITION|ID) from the leader"),
    (r"UnifiedLog|kafka\.log\.Log", r"Non-monotonic update of high watermark"),
    # One that was controller until it was held back.
    (r"KafkaApis", r"apiKey=UPDATE_METADATA.*\n\S+ControllerMovedException: .* an old controller"),
    (r"state\.change\.logger", r"from an old controller \d+ with epoch"),
    (r"state\.change\.logger", r"since its controller epoch \d+ is old"),
    (r"KafkaController", r"A controller has been elected but just resigned"),
    # No replica lives while a topic is being deleted, or all were killed.
    (r"state\.change\.logger", r"cannot become follower since the new leader -?\d+ is unavailable"),
    (r"state\.change\.logger", r"failed to change state .*\n\S+StateChangeFailedException"),
    # A new controller goes on with a move whose new replicas are already there.
    (r"state\.change\.logger", r"from (Off|On)lineReplica to NewReplica failed"),
    # It is elected before the session of a dead broker ends, takes that for alive, and finds out in
    # the middle of a deletion.
    (r"state\.change\.logger", r"from OnlineReplica to ReplicaDeletionIneligible failed"),
    # A producer that was refused sends again what it sent after it.
    (r"ReplicaManager", r"Error processing append .*\n\S+OutOfOrderSequenceException"),
    (r"zookeeper\.ClientCnxn", r"[Ss]ession"),
    # Before 3.6 a broker's first start is worth a warning.
    (r"BrokerMetadataCheckpoint", r"No meta\.properties file under dir"),
]
# Ours: after kill -9 a batch of which only the beginning was written, and a directory that does not
# say in which boot Apache Kafka used it; one that was controller until it was held back, or killed.
OUR_USUAL = re.compile(
    r"WARNING odradek\.log\.recovery: .* bad bytes and \S+ later segments removed"
    r"|WARNING odradek\.broker\.unclean_start: .*: unclean shutdown: unflushed records may be lost"
    r"|WARNING odradek\.replica\.control_requests: .*: STALE_CONTROLLER_EPOCH"
    r"|WARNING odradek\.broker\.producer_ids: no block of producer ids, retrying: error 41 from"
    r"|WARNING odradek\.controller\.controller_election: .* no longer listens and is deposed"
)


def entries(log: Path) -> Iterator[str]:
    """A log's entries of at least two lines: what was said, and the exception if there was one."""
    entry: list[str] = []
    for line in log.read_text(errors="replace").splitlines():
        if ENTRY.match(line):
            if entry:
                yield "\n".join(entry)
            entry = [line]
        elif not line.startswith(("\t", "Caused by")):
            entry.append(line)
    if entry:
        yield "\n".join(entry)


def is_usual(entry: str) -> bool:
    parsed = ENTRY.match(entry)
    if parsed is None:
        return False
    if parsed["level"] == "INFO":
        return True
    said = entry[parsed.start("text") :]
    return any(
        re.search(logger, parsed["logger"]) and re.search(text, said, re.DOTALL)
        for logger, text in USUAL
    )


def complaints(home: Path) -> list[str]:
    """What is unusual in the logs under a directory: Kafka's warnings and errors, and ours."""
    theirs = [
        f"{log.name}: {entry[:2000]}"
        for log in home.rglob("*.kafka.log")
        for entry in entries(log)
        if not is_usual(entry)
    ]
    ours = [
        f"{log.name}: {line}"
        for log in home.rglob("*.odradek.log")
        for line in log.read_text(errors="replace").splitlines()
        if re.search(r"^\S+ \S+ (WARNING|ERROR|CRITICAL) |^Traceback", line)
        and not OUR_USUAL.search(line)
    ]
    return theirs + ours
