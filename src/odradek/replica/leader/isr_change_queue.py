"""A leader's changes of the ISR on their way to the store.

docs/spec/controller-and-replication.md section 5.3, docs/spec/protocol-ladder.md section 3.

A leader role submits an `IsrChange` and gets an `IsrResult`. Changes are written in batches, one
batch at a time, over the path that the inter-broker protocol has: the leader's own write of the
state node (direct_isr_path.py), or AlterPartition to the controller (controller_isr_path.py).

Which follower may join (the hole that KIP-903 closed, closed here without its wire format). A
broker that restarted with an empty disk must not be in the ISR because of what its predecessor,
same id, had fetched. An incarnation is known by its broker epoch, the creation id of its node in
the store. So:
1. Before a change is submitted, the leader knows which incarnation fetches: from Fetch v15 on by
   what the fetch says, before that because the follower's registration is read, and then its link
   must show that it is alive after that read (`FollowerLink.identified`): a fetch left over from a
   dead predecessor cannot.
2. Right before the write the registration is read again; with another epoch, or none,
   the change is not applied, and what the leader knew of the follower's log is dropped. If the
   change was sent before, and the answer was lost, it may have been written or still be: the ISR
   without the follower is written, in its place or over it.
3. Right after the write it is read once more. If the epoch is still the same, the write happened in
   that incarnation's life, and its death will be seen by the controller, which removes it. If not,
   the write is reverted at once, before the leader counts it as done.

What a crash does. A pending change is in memory only. If this broker dies, the change was written
or never will be: the next leader begins a new leader epoch, in which the store and the controller
refuse it. If the controller dies, the change is sent to the next one, which finds it written or
writes it: it lands once. Until its fate is known, the high watermark counts the maximal ISR, so
either is safe.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable

from odradek.replica.controller_channel import ControllerUnavailable
from odradek.replica.leader.fetch_state import FollowerLink, Wakeups
from odradek.replica.leader.isr_change import (
    Accepted,
    IsrChange,
    IsrPath,
    IsrRefusal,
    NotApplied,
    Rejected,
)
from odradek.store.api import StoreError
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import LeaderAndIsr

__all__ = ["IsrChangeQueue"]

logger = logging.getLogger(__name__)


class IsrChangeQueue:
    """The ISR changes of one broker."""

    def __init__(self, store: ClusterStore, path: IsrPath, wakeups: Wakeups) -> None:
        self._store = store
        self._path = path
        self._wakeups = wakeups
        self._queue: list[IsrChange] = []
        self._writer: asyncio.Task[None] | None = None
        self._readers: set[asyncio.Task[None]] = set()
        self._counts = {"expanded": 0, "shrunk": 0, "refused": 0, "voided": 0}

    # Incarnations

    def identify(self, link: FollowerLink) -> None:
        """Find out which incarnation of its broker is at the other end of this link."""
        if link.epoch is None and not link.is_being_identified:
            link.is_being_identified = True
            self._start(self._identify(link))

    async def _identify(self, link: FollowerLink) -> None:
        try:
            broker = await self._store.broker(link.broker_id)
        except StoreError as error:
            logger.warning("broker %d: cannot read its registration: %s", link.broker_id, error)
            return
        finally:
            link.is_being_identified = False
        if broker is not None:
            link.identified(broker.epoch)
            if link.parked is not None:
                # Answered at once, so that the next fetch, which proves the incarnation, comes.
                link.parked.try_complete(force=True)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _epochs(self, broker_ids: Iterable[int]) -> dict[int, int]:
        ids = list(broker_ids)
        brokers = await asyncio.gather(*map(self._store.broker, ids))
        return {broker.id: broker.epoch for broker in brokers if broker is not None}

    @staticmethod
    def _is_present(change: IsrChange, epochs: dict[int, int]) -> bool:
        return change.joining is None or epochs.get(change.joining) == change.broker_epoch

    # Writing

    def submit(self, change: IsrChange) -> None:
        """Write this change; its role gets the result, unless the change is withdrawn before."""
        self._queue.append(change)
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write_all())

    async def _write_all(self) -> None:
        """One batch at a time; changes submitted meanwhile are the next batch."""
        problem = ""
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                try:
                    again = await self._write(batch)
                except (StoreError, ControllerUnavailable) as error:
                    again = batch
                    if str(error) != problem:  # said once, not with every attempt
                        problem = str(error)
                        # A controller that is not there is ordinary: the next one is being elected.
                        is_store = isinstance(error, StoreError)
                        level = logging.WARNING if is_store else logging.INFO
                        logger.log(level, "%d ISR changes pending, retrying: %s", len(batch), error)
                if again:
                    await asyncio.sleep(self._path.retry_s)
                    self._queue = again + self._queue
        finally:
            self._writer = None

    async def _write(self, batch: list[IsrChange]) -> list[IsrChange]:
        """Returns those that are to be written again."""
        batch = [change for change in batch if not change.is_withdrawn]
        joining = {change.joining for change in batch if change.joining is not None}
        before = await self._epochs(joining)
        writing, again = [], []
        for change in batch:
            if self._is_present(change, before):
                writing.append(change)
            elif not change.is_sent:
                self._restarted(change, None)
            elif await self._revert_unconfirmed(change) is IsrRefusal.UNDECIDED:
                again.append(change)
        outcomes = await self._path.write([each.proposal for each in writing]) if writing else []
        after = await self._epochs(joining)
        for change, outcome in zip(writing, outcomes, strict=True):
            if isinstance(outcome, IsrRefusal):
                refusal: IsrRefusal | None = outcome
            elif self._is_present(change, after):
                self._accepted(change, outcome)
                continue
            else:
                refusal = await self._revert(change, outcome)
            if refusal is IsrRefusal.UNDECIDED:
                again.append(change)
            elif refusal is not None:
                self._refused(change, refusal)
        self._wakeups.run()
        return again

    def _accepted(self, change: IsrChange, state: LeaderAndIsr) -> None:
        if not change.is_withdrawn:
            verb = "shrinks" if change.joining is None else "expands"
            logger.info(
                "%s: ISR %s from %s to %s in leader epoch %d",
                change.tp,
                verb,
                list(change.committed),
                list(change.state.isr),
                change.state.leader_epoch,
            )
        change.finish(Accepted(state.partition_epoch))
        self._counts["shrunk" if change.joining is None else "expanded"] += 1

    def _refused(self, change: IsrChange, refusal: IsrRefusal) -> None:
        self._counts["refused"] += 1
        change.finish(NotApplied() if refusal is IsrRefusal.NOT_APPLIED else Rejected())

    async def _revert_unconfirmed(self, change: IsrChange) -> IsrRefusal | None:
        """The broker that was to join has restarted, and may have been let in or not.

        Where nothing is written for an ISR that stands, the change itself must be known to have
        landed, or to be refused, before it can be reverted: else it might land later.
        """
        if change.is_withdrawn:
            return None
        if self._path.writes_unchanged_isr:
            (reverted,) = await self._path.write([change.without_joining(change.state)])
            if not isinstance(reverted, IsrRefusal):
                self._restarted(change, reverted.partition_epoch)
                return None
        (written,) = await self._path.write([change.proposal])
        refusal = (
            written if isinstance(written, IsrRefusal) else await self._revert(change, written)
        )
        if refusal is not None and refusal is not IsrRefusal.UNDECIDED:
            self._refused(change, refusal)
        return refusal

    async def _revert(self, change: IsrChange, written: LeaderAndIsr) -> IsrRefusal | None:
        """Take out again what has joined in another life. If that is undecided, it is tried again
        from the beginning: what is in force is not written twice."""
        (reverted,) = await self._path.write([change.without_joining(written)])
        if reverted is IsrRefusal.UNDECIDED:
            return reverted
        if isinstance(reverted, IsrRefusal):
            return IsrRefusal.REJECTED  # what was written stands: only the controller can settle it
        self._restarted(change, reverted.partition_epoch)
        return None

    def _restarted(self, change: IsrChange, partition_epoch: int | None) -> None:
        self._counts["voided"] += 1
        logger.info(
            "%s: broker %s restarted after it had caught up: it joins the ISR when it has again",
            change.tp,
            change.joining,
        )
        assert change.link is not None
        change.link.forget_epoch()
        change.finish(NotApplied(partition_epoch, is_other_incarnation=True))

    async def close(self) -> None:
        tasks = [*self._readers, *([self._writer] if self._writer is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def statistics(self) -> dict[str, int]:
        return {**self._counts, "queued": len(self._queue)}
