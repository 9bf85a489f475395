"""Plans as records: `__odradek_plans`, one partition, compacted.

| key | value |
|---|---|
| `plan/<id>` | the plan without its moves, and how many chunks these are |
| `plan/<id>/moves/<n>` | some of its moves, each with the replicas before: the way back |
| `plan/<id>/run` | how it is carried out: by whom, since when, what was left out |
| `plan/<id>/throttle/<n>` | settings that a client changed for it, and what they were before |
| `pause` | until when nothing is started by itself, and why |

Chunks are written first and `plan/<id>` last: a writer that dies in between leaves no plan, only
records that the next plan of that id replaces. The last write of a key counts. What cannot be read
is left out, with a line in the log: one bad record does not hide the others.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.balance.plan import InvalidPlan, Plan, move_to_dict, next_plan_id
from odradek.client.admin import Admin
from odradek.client.producer import Producer
from odradek.client.reader import EARLIEST, LATEST, PartitionReader, offsets_at
from odradek.client.values import NewTopic, check
from odradek.operations.throttle import HeldSetting
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

logger = logging.getLogger(__name__)

TOPIC = "__odradek_plans"
PARTITION = TopicPartition(TOPIC, 0)
REPLICAS_MAX = 3
CHUNK_BYTES = 900_000
# So many plans are kept; the oldest that is not being carried out goes.
PLANS_KEPT = 100
PAUSE = "pause"


class RunState(StrEnum):
    """Where a plan is in its life."""

    PLANNED = "planned"
    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Run:
    """How a plan is carried out. `dropped` are partitions that were not where the plan had them."""

    state: RunState = RunState.PLANNED
    started_ms: int = 0
    ended_ms: int = 0
    by: str = ""
    throttle: int | None = None
    dropped: tuple[str, ...] = ()
    rollback_of: str | None = None
    # The controller is Apache Kafka's: clients hand it the moves, a few at a time.
    is_fed: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is started by itself until then, or until it is resumed."""

    because: str
    by: str
    at_ms: int
    until_ms: int | None = None

    def holds(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class StoredPlans:
    """All that the topic holds."""

    plans: Mapping[str, Plan] = field(default_factory=dict)
    runs: Mapping[str, Run] = field(default_factory=dict)
    throttles: Mapping[str, Sequence[HeldSetting]] = field(default_factory=dict)
    pause: Pause | None = None
    # How many chunks of moves and of settings each plan has.
    chunks: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def plan(self, id: str) -> Plan:
        if id not in self.plans:
            known = ", ".join(list(self.plans)[-5:]) or "none"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"no plan {id}; the latest: {known}")
        return self.plans[id]

    def run(self, id: str) -> Run:
        return self.runs.get(id, Run())

    def running(self) -> list[str]:
        """The plans under way, and those that were stopped and still hold settings."""
        return [
            id
            for id in self.plans
            if self.run(id).state is RunState.RUNNING or self.throttles.get(id)
        ]

    def latest(self) -> str | None:
        """The plan that runs, else the one that was started or made last."""
        if running := self.running():
            return running[-1]
        times = {
            id: max(self.run(id).started_ms, plan.created_ms) for id, plan in self.plans.items()
        }
        return max(times, key=times.__getitem__, default=None)

    def new_id(self, now_ms: int) -> str:
        """The next free id of the day."""
        day = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d")
        return next_plan_id(day, list(self.plans))


class PlanStore:
    """Reads and writes the topic. One writer at a time is expected: the last one counts."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._client = admin.client

    async def read(self) -> StoredPlans:
        """Everything; nothing if the topic does not exist yet."""
        metadata = await self._client.refresh([TOPIC])
        if TOPIC not in metadata.topics:
            return StoredPlans()
        start = (await offsets_at(self._client, {PARTITION: EARLIEST}))[PARTITION].offset
        end = (await offsets_at(self._client, {PARTITION: LATEST}))[PARTITION].offset
        found: dict[str, bytes] = {}
        async for batches in PartitionReader(self._client).batches(PARTITION, start, end):
            for record in batches.open(skip=lambda batch: logger.warning("%s", batch)):
                key = (record.key or b"").decode(errors="replace")
                found.pop(key, None)
                if record.value is not None:
                    found[key] = record.value
        return decode(found)

    async def put(self, plan: Plan, stored: StoredPlans, run: Run | None = None) -> None:
        """Keep a plan, and let the oldest go."""
        records = encode_plan(plan)
        if run is not None:
            records[_run_key(plan.id)] = _dump(asdict(run))
        stale = [id for id in stored.plans if id not in stored.running() and id != plan.id]
        for id in stale[: max(0, len(stored.plans) + 1 - PLANS_KEPT)]:
            records.update(_removal(id, *stored.chunks[id]))
        await self._write(records)

    async def set_run(self, id: str, run: Run) -> None:
        await self._write({_run_key(id): _dump(asdict(run))})

    async def hold(self, id: str, settings: Sequence[HeldSetting]) -> None:
        """Remember what these settings were, before they are changed."""
        chunks = _chunks([asdict(setting) for setting in settings])
        await self._write(
            {f"plan/{id}/throttle/{n}": _dump(chunk) for n, chunk in enumerate(chunks)}
        )

    async def release(self, id: str, stored: StoredPlans) -> None:
        """These settings are as they were."""
        _, count = stored.chunks.get(id, (0, 0))
        await self._write({f"plan/{id}/throttle/{n}": None for n in range(count)})

    async def set_pause(self, pause: Pause | None) -> None:
        await self._write({PAUSE: None if pause is None else _dump(asdict(pause))})

    async def _write(self, records: Mapping[str, bytes | None]) -> None:
        if not records:
            return
        await self.ensure_topic()
        async with Producer(self._client) as producer:
            for key, value in records.items():
                await producer.send(TOPIC, value, key=key.encode(), partition=0)

    async def ensure_topic(self) -> None:
        """Create the topic unless it is there."""
        metadata = await self._client.refresh([TOPIC])
        if TOPIC in metadata.topics:
            return
        topic = NewTopic(
            TOPIC,
            partitions=1,
            replication_factor=min(REPLICAS_MAX, len(metadata.nodes)),
            configs={"cleanup.policy": "compact"},
        )
        outcome = (await self._admin.create_topics([topic]))[TOPIC]
        if outcome is not None and outcome.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            check({TOPIC: outcome})
        await self._client.require_topics([TOPIC])


# Records


def encode_plan(plan: Plan) -> dict[str, bytes | None]:
    """The records of a plan, in the order to write them."""
    chunks = list(_chunks([move_to_dict(move) for move in plan.moves]))
    records: dict[str, bytes | None] = {
        f"plan/{plan.id}/moves/{n}": _dump(chunk) for n, chunk in enumerate(chunks)
    }
    summary = replace(plan, moves=()).to_dict()
    records[f"plan/{plan.id}"] = _dump({**summary, "chunks": len(chunks)})
    return records


def decode(records: Mapping[str, bytes]) -> StoredPlans:
    """What the topic holds, from the last value of each key. Order is that of the last write."""
    plans: dict[str, Plan] = {}
    runs: dict[str, Run] = {}
    throttles: dict[str, Sequence[HeldSetting]] = {}
    chunks = {}
    for key in records:
        match key.split("/"):
            case ["plan", id]:
                if (plan := _try(key, lambda: _read_plan(records, id))) is not None:
                    plans[id] = plan
                if (run := _try(key, lambda: _read_run(records, id))) is not None:
                    runs[id] = run
                held = _try(key, lambda: list(_read_held(records, id))) or []
                throttles[id] = held
                chunks[id] = (_count(records, id, "moves"), _count(records, id, "throttle"))
    pause = None
    if PAUSE in records:
        pause = _try(PAUSE, lambda: _checked(Pause(**json.loads(records[PAUSE]))))
    return StoredPlans(plans, runs, throttles, pause, chunks)


def _try(key: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (InvalidPlan, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        logger.warning("%s: ignoring %.200s: %.500r", TOPIC, key, error)
        return None


def _read_plan(records: Mapping[str, bytes], id: str) -> Plan:
    found = json.loads(records[f"plan/{id}"])
    moves = [
        move
        for n in range(int(found.pop("chunks")))
        for move in json.loads(records[f"plan/{id}/moves/{n}"])
    ]
    return Plan.from_json(_dump({**found, "moves": moves}))


def _read_run(records: Mapping[str, bytes], id: str) -> Run | None:
    data = records.get(_run_key(id))
    if data is None:
        return None
    found = json.loads(data)
    found["state"] = RunState(found["state"])
    found["dropped"] = tuple(map(str, found["dropped"]))
    return _checked(Run(**found))


def _read_held(records: Mapping[str, bytes], id: str) -> Iterator[HeldSetting]:
    for n in range(_count(records, id, "throttle")):
        for found in json.loads(records[f"plan/{id}/throttle/{n}"]):
            yield _checked(HeldSetting(**found))


def _checked(made: T) -> T:
    """Whether each field is of the kind it is declared as: any writer of the topic could have
    written it. TypeError if not."""
    for declared in fields(made):
        kind, value = declared.type, getattr(made, declared.name)
        if isinstance(kind, type | UnionType) and not isinstance(value, kind):
            raise TypeError(f"{declared.name} of {str(value)[:50]!r}")
    return made


def _count(records: Mapping[str, bytes], id: str, part: str) -> int:
    count = 0
    while f"plan/{id}/{part}/{count}" in records:
        count += 1
    return count


def _removal(id: str, moves: int, settings: int) -> dict[str, bytes | None]:
    keys = [f"plan/{id}", _run_key(id)]
    keys += [f"plan/{id}/moves/{n}" for n in range(moves)]
    keys += [f"plan/{id}/throttle/{n}" for n in range(settings)]
    return dict.fromkeys(keys)


def _chunks(items: Iterable[Mapping[str, object]]) -> Iterator[list[Mapping[str, object]]]:
    """Pieces that each fit in a record."""
    chunk: list[Mapping[str, object]] = []
    size = 0
    for item in items:
        length = len(_dump(item)) + 1
        if chunk and size + length > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield chunk


def _run_key(id: str) -> str:
    return f"plan/{id}/run"


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
