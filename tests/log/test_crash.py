"""The log against a model, with a crash at every change to the disk.

The model is the list of batches appended. After a kill, everything that was appended is there.
After a power failure, which takes what was not synced, what is there is a prefix of what was
appended at some moment since the last flush, and never less than was flushed. Either way the log
that comes up is whole: offsets, indexes, leader epochs and producer state all follow from the
batches in it, and it goes on.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.logs import (
    NOW_MS,
    SMALL,
    Crash,
    CrashingDisk,
    batch,
    everything,
    is_sorted,
    mounted,
    open_log,
    read_all,
    sim_disk,
)

from odradek.log.disk import Disk
from odradek.log.log import Log
from odradek.log.producers import Origin
from odradek.wire.batch import header_at, set_offset_and_epoch
from odradek.wire.records import (
    ControlType,
    TransactionEnd,
    decode_transaction_end,
    encode_transaction_end,
)

PRODUCERS = (5, 6)

State = tuple[bytes, ...]


class Step(NamedTuple):
    """One operation, and a number for it to make something of."""

    name: str
    number: int = 0


STEPS = (
    "append",
    "append",
    "append",
    "replicate",
    "produce",
    "produce",
    "transact",
    "end",
    "reign",
    "flush",
    "roll",
    "truncate",
    "start",
    "expire",
    "reopen",
)

steps = st.builds(Step, st.sampled_from(STEPS), st.integers(0, 1000))


class Model:
    """A log and what it ought to contain, on a disk that may crash."""

    def __init__(self) -> None:
        self.platter = sim_disk()
        self.disk = CrashingDisk(mounted(self.platter))
        self.epoch = 0
        self.batches: State = ()
        self.before: State = ()
        # Every state since the last flush: what a power failure may bring back the beginning of.
        self.history: list[State] = [()]
        self.start_offset = 0
        self.recovery_point = 0
        self.log = self.open(self.disk, clean=False)

    def open(self, disk: Disk, *, clean: bool) -> Log:
        return open_log(
            disk,
            SMALL,
            start_offset=self.start_offset,
            recovery_point=self.recovery_point,
            clean=clean,
            on_recovery_point_lowered=self.checkpoint,
        )

    def checkpoint(self, log: Log) -> None:
        self.recovery_point = log.recovery_point

    def run(self, step: Step) -> None:
        """Do it; the state it leads to is known before it begins, for it may never end."""
        self.before = self.batches
        getattr(self, "do_" + step.name)(step.number)
        assert self.log.end_offset >= self.log.start_offset

    def expect(self, batches: State) -> None:
        self.history.append(batches)
        self.batches = batches

    def add(self, data: bytearray, *, origin: Origin = Origin.CLIENT) -> None:
        final = bytearray(data)
        set_offset_and_epoch(final, 0, self.log.end_offset, self.epoch)
        self.expect((*self.batches, bytes(final)))
        self.log.append_as_leader(data, self.epoch, origin=origin)

    def do_append(self, number: int) -> None:
        time_ms = NOW_MS + number % 97
        self.add(batch(1 + number % 3, value=b"v" * (number % 300), time_ms=time_ms))

    def do_replicate(self, number: int) -> None:
        parts = []
        offset = self.log.end_offset
        for index in range(1 + number % 4):
            part = batch(1 + index, value=b"w" * (number % 150), time_ms=NOW_MS + number % 97)
            set_offset_and_epoch(part, 0, offset, self.epoch)
            offset += 1 + index
            parts.append(bytes(part))
        for appended in parts:  # A large buffer is written segment by segment.
            self.expect((*self.batches, appended))
        self.log.append_as_follower(b"".join(parts) + parts[0][:20])

    def sequence_of(self, producer: int) -> int:
        state = self.log.producers.get(producer)
        return 0 if state is None else state.last_sequence + 1

    def do_produce(self, number: int, *, transactional: bool = False) -> None:
        producer = PRODUCERS[number % 2]
        if self.log.producers.has_open_transaction(producer) and not transactional:
            return
        self.add(
            batch(
                1 + number % 2,
                value=b"p" * (number % 100),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=self.sequence_of(producer),
                transactional=transactional,
            )
        )

    def do_transact(self, number: int) -> None:
        self.do_produce(number, transactional=True)

    def do_end(self, number: int) -> None:
        kind = ControlType(number // 2 % 2)
        end = TransactionEnd(kind, 0, NOW_MS)
        marker = encode_transaction_end(end, PRODUCERS[number % 2], 0)
        self.add(marker, origin=Origin.COORDINATOR)

    def do_reign(self, number: int) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch, self.log.end_offset)

    def do_flush(self, number: int) -> None:
        self.log.flush()
        self.checkpoint(self.log)
        self.history = [self.batches]

    def do_roll(self, number: int) -> None:
        self.log.roll()

    def do_truncate(self, number: int) -> None:
        offset = self.log.start_offset + number % (self.log.end_offset - self.log.start_offset + 1)
        self.expect(tuple(b for b in self.batches if header_at(b).last_offset < offset))
        self.log.truncate_to(offset)
        self.start_offset = self.log.start_offset

    def do_start(self, number: int) -> None:
        self.log.set_high_watermark(self.log.end_offset)
        span = self.log.end_offset - self.log.start_offset
        self.start_offset = self.log.start_offset + number % (span // 2 + 1)
        self.log.advance_start_offset(self.start_offset)

    def do_expire(self, number: int) -> None:
        self.log.set_high_watermark(self.log.end_offset)
        self.log.delete_old_segments()

    def do_reopen(self, number: int) -> None:
        self.log.close()
        self.checkpoint(self.log)
        self.history = [self.batches]
        self.log = self.open(self.disk, clean=True)

    def crash(self, rng: random.Random | None) -> None:
        """The machine stops: with a random number generator, its power is gone. It comes up."""
        if rng is not None:
            self.platter.lose_power(rng)
        self.disk = CrashingDisk(mounted(self.platter))
        log = self.open(self.disk, clean=False)
        found = self.live(tuple(everything(log)))
        states = [self.live(state) for state in self.history]
        assert any(found == state[: len(found)] for state in states), (found, states)
        if rng is None:
            states = [self.live(self.before), self.live(self.batches)]
        assert len(found) >= min(len(state) for state in states)
        self.log = log
        self.before = self.batches = found
        self.history = [found] if rng is not None else [*self.history, found]
        self.epoch = max(self.epoch, log.epochs.latest_epoch or 0) + 1

    def live(self, state: State) -> State:
        """The batches that the log's start has not passed."""
        return tuple(b for b in state if header_at(b).last_offset >= self.start_offset)

    def check(self) -> None:
        """Everything about the log follows from its batches."""
        log = self.log
        found = self.live(tuple(everything(log)))
        assert found == self.live(self.batches)
        assert self.live(tuple(read_all(log))) == found
        heads = [header_at(data) for data in found]
        assert log.end_offset == (heads[-1].next_offset if heads else log.end_offset)
        for head in heads:
            assert (
                log.epochs.epoch_for_offset(max(head.base_offset, log.start_offset))
                == head.leader_epoch
            )
            for offset in range(max(head.base_offset, log.start_offset), head.next_offset):
                first = header_at(log.read(offset, 1).records)
                assert first.base_offset == head.base_offset
                until = log.read(log.start_offset, 1 << 20, end_offset=offset).records
                assert not until or header_at(until).base_offset < head.base_offset
        for segment in log.segments:
            assert is_sorted(segment.offset_index) and is_sorted(segment.time_index)
            segment.transaction_index.check()
        for time_ms in {head.max_timestamp for head in heads}:
            later = [head for head in heads if head.max_timestamp >= time_ms]
            answer = log.offset_for_timestamp(time_ms)
            assert answer is not None
            assert answer[1] == max(later[0].base_offset, log.start_offset)
        self.check_producers()

    def check_producers(self) -> None:
        """What lies below the log's start may be remembered or not; the rest must be right."""
        log = self.log
        last: dict[int, int] = {}
        opened: dict[int, int] = {}
        ended: set[int] = set()
        aborted = set()
        for data in self.live(tuple(everything(log))):
            head = header_at(data)
            if head.is_control:
                end = decode_transaction_end(data, head)
                first = opened.pop(head.producer_id, None)
                ended.add(head.producer_id)
                assert end is not None
                if first is not None and end.type is ControlType.ABORT:
                    aborted.add((head.producer_id, head.base_offset))
            elif head.producer_id >= 0:
                last[head.producer_id] = head.last_sequence
                if head.is_transactional:
                    opened.setdefault(head.producer_id, head.base_offset)
        for producer, sequence in last.items():
            state = log.producers.get(producer)
            assert state is not None
            assert state.last_sequence == sequence
            assert state.transaction_start >= 0 or producer not in opened
            assert state.transaction_start < 0 or producer in opened or producer not in ended
        found = {
            (a.producer_id, a.last_offset) for a in log.aborted_transactions(0, log.end_offset)
        }
        assert found >= aborted
        log.set_high_watermark(log.end_offset)
        unstable = min([log.end_offset, *opened.values()])
        assert log.last_stable_offset <= max(log.start_offset, unstable)


def script() -> Iterator[Step]:
    """A life with everything in it."""
    rng = random.Random(7)
    for name in [*STEPS, *STEPS, *STEPS]:
        yield Step(name, rng.randrange(1000))


def changes_of_script() -> int:
    model = Model()
    for step in script():
        model.run(step)
    return model.disk.changes


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power failure"])
def test_a_crash_at_every_change(power: bool) -> None:
    for changes in range(changes_of_script()):
        model = Model()
        model.disk.changes_left = changes - model.disk.changes
        try:
            for step in script():
                model.run(step)
        except Crash:
            pass
        model.crash(random.Random(changes) if power else None)
        model.check()


def transactions_of(log: Log) -> object:
    """The last stable offset, the aborted transactions by segment, and the open ones."""
    log.set_high_watermark(log.end_offset)
    return (
        log.last_stable_offset,
        [list(segment.transaction_index.entries()) for segment in log.segments],
        [(of, state.transaction_start, state.epoch) for of, state in log.producers.items()],
    )


def test_transactions_are_the_same_after_a_kill_at_any_step() -> None:
    rng = random.Random(1)
    names = [rng.choice(("transact", "transact", "end", "append", "flush")) for _ in range(80)]
    life = [Step(name, rng.randrange(1000)) for name in names]
    aborted = opened = 0
    for steps_done in range(1, len(life) + 1):
        model = Model()
        for step in life[:steps_done]:
            model.run(step)
        expected = transactions_of(model.log)
        model.crash(None)
        assert transactions_of(model.log) == expected
        aborted = len(model.log.aborted_transactions(0, model.log.end_offset))
        opened += any(map(model.log.producers.has_open_transaction, PRODUCERS))
    assert len(model.log.segments) > 2 and aborted > 5
    assert 0 < opened < len(life)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.lists(steps, max_size=25), st.integers(0, 60), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 1000),
)
def test_lives_with_several_crashes(lives: list[tuple[list[Step], int, bool]], seed: int) -> None:
    model = Model()
    rng = random.Random(seed)
    for life, changes, power in lives:
        model.disk.changes_left = changes
        try:
            for step in life:
                model.run(step)
            model.disk.changes_left = None
            model.check()
        except Crash:
            pass
        model.disk.changes_left = None
        model.crash(rng if power else None)
        model.check()


@settings(max_examples=60)
@given(st.lists(steps, max_size=60))
def test_a_life_without_a_crash(life: list[Step]) -> None:
    model = Model()
    for step in life:
        model.run(step)
    model.check()
    model.do_reopen(0)
    model.check()
