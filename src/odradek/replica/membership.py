"""Writing the ISR to the store, and telling the controller.

docs/spec/controller-and-replication.md 5.3, docs/spec/interchange-with-apache-kafka.md C.

The leader writes the state node itself, under the version it knows, and announces which partitions
it changed in `/isr_change_notification`: at once if it has announced nothing for a while, and then
many together, once a second. (Kafka waits until nothing has changed for five seconds, up to a
minute; clients are told of a full ISR as much later.)

Who may join (the hole that KIP-903 closed, closed here without its wire format). A broker that came
back with an empty disk must not be in the ISR because of what its predecessor, same id, had
fetched. An incarnation is known by its broker epoch, the creation id of its node in the store; a
Fetch does not carry it. So:
1. Before a follower is proposed, its registration is read, and then its link must show that it is
   alive after that read (`FollowerLink.identified`): a fetch left over from a dead predecessor
   cannot.
2. Right before the write the registration is read again; another epoch, or none, voids the
   proposal, and what the leader knew of the follower's log with it. If it was sent before, and the
   store broke off, it may stand there or still land: the ISR without the follower is written, in
   its place or over it.
3. Right after the write it is read once more. If the epoch is still the same, the write happened in
   that incarnation's life, and its death will be seen by the controller, which removes it. If not,
   the write is taken back at once, before the leader counts it as done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from odradek.replica.fetching import FollowerLink
from odradek.replica.proposal import IsrProposal
from odradek.store.api import StoreError
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import PartitionState
from odradek.wire.topics import TopicPartition

__all__ = ["Membership"]

log = logging.getLogger(__name__)

# What changes together is announced together, and an announcement costs the whole cluster a little.
NOTIFY_SOONEST_S = 0.05
NOTIFY_EVERY_S = 1.0
RETRY_S = 0.5


class Membership:
    """The ISR proposals of one broker on their way to the store."""

    def __init__(
        self,
        broker_id: int,
        store: ClusterStore,
        *,
        on_change: Callable[[], None],
        on_identified: Callable[[FollowerLink], None],
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._on_change = on_change
        self._on_identified = on_identified
        self._loop = asyncio.get_running_loop()
        self._queue: list[IsrProposal] = []
        self._writer: asyncio.Task[None] | None = None
        self._readers: set[asyncio.Task[None]] = set()
        self._changed: set[TopicPartition] = set()
        self._notified_at = self._loop.time() - NOTIFY_EVERY_S
        self._notifier: asyncio.TimerHandle | None = None
        self._counts = {"expanded": 0, "shrunk": 0, "refused": 0, "voided": 0, "notified": 0}

    # Who is there

    def identify(self, link: FollowerLink) -> None:
        if link.epoch is None and not link.is_being_identified:
            link.is_being_identified = True
            self._start(self._identify(link))

    async def _identify(self, link: FollowerLink) -> None:
        try:
            broker = await self._store.broker(link.broker_id)
        except StoreError as error:
            log.warning("cannot read the registration of broker %d: %s", link.broker_id, error)
            return
        finally:
            link.is_being_identified = False
        if broker is not None:
            link.identified(broker.epoch)
            self._on_identified(link)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _epochs(self, broker_ids: Iterable[int]) -> dict[int, int]:
        ids = list(broker_ids)
        brokers = await asyncio.gather(*map(self._store.broker, ids))
        return {broker.id: broker.epoch for broker in brokers if broker is not None}

    # Writing

    def propose(self, proposal: IsrProposal) -> None:
        self._queue.append(proposal)
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write_all())

    async def _write_all(self) -> None:
        """One batch at a time; what is proposed meanwhile is the next batch."""
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                try:
                    await self._write(batch)
                except StoreError as error:
                    log.warning("cannot write %d ISR changes, trying again: %s", len(batch), error)
                    await asyncio.sleep(RETRY_S)
                    self._queue = batch + self._queue
        finally:
            self._writer = None

    async def _write(self, batch: list[IsrProposal]) -> None:
        batch = [proposal for proposal in batch if proposal is proposal.partition.proposal]
        joining = {proposal.joining for proposal in batch if proposal.joining is not None}
        before = await self._epochs(joining)
        writing = []
        for proposal in batch:
            if self._is_present(proposal, before):
                writing.append(proposal)
            elif proposal.is_sent:
                await self._withdraw(proposal)
            else:
                self._void(proposal, None)
        states = await asyncio.gather(*map(self._write_one, writing))
        after = await self._epochs(joining)
        for proposal, state in zip(writing, states, strict=True):
            if state is None:
                self._refused(proposal)
            elif self._is_present(proposal, after):
                self._taken(proposal, state)
            else:
                self._undone(proposal, await self._without_joining(proposal, state))
        self._on_change()

    async def _write_one(self, proposal: IsrProposal) -> PartitionState | None:
        if proposal is not proposal.partition.proposal:
            return None
        proposal.is_sent = True
        return await self._store.update_isr(
            proposal.partition.topic_partition, self._proposed(proposal)
        )

    def _proposed(self, proposal: IsrProposal) -> PartitionState:
        partition = proposal.partition
        return PartitionState(
            leader=self._broker_id,
            leader_epoch=partition.leader_epoch,
            isr=proposal.isr,
            controller_epoch=partition.controller_epoch,
            partition_epoch=partition.partition_epoch,
        )

    @staticmethod
    def _is_present(proposal: IsrProposal, epochs: dict[int, int]) -> bool:
        return proposal.joining is None or epochs.get(proposal.joining) == proposal.broker_epoch

    def _taken(self, proposal: IsrProposal, state: PartitionState) -> None:
        if proposal.partition.proposal_taken(proposal, state.partition_epoch):
            log.info("ISR of %s is now %s", proposal.partition.topic_partition, list(proposal.isr))
        self._counts["shrunk" if proposal.joining is None else "expanded"] += 1
        self._announce(proposal.partition.topic_partition)

    def _refused(self, proposal: IsrProposal) -> None:
        """The controller was faster. What we proposed stays pending until it tells us its state."""
        self._counts["refused"] += 1
        log.info(
            "ISR %s of %s refused: the state is no longer at version %d",
            list(proposal.isr),
            proposal.partition.topic_partition,
            proposal.partition.partition_epoch,
        )

    async def _withdraw(self, proposal: IsrProposal) -> None:
        """Whoever was to join is another by now, and nobody knows whether the store let it in."""
        if proposal is not proposal.partition.proposal:
            return
        sent = self._proposed(proposal)
        undone = await self._without_joining(proposal, sent)
        if undone is None:
            landed = await self._store.update_isr(proposal.partition.topic_partition, sent)
            if landed is not None:
                undone = await self._without_joining(proposal, landed)
        self._undone(proposal, undone)

    async def _without_joining(
        self, proposal: IsrProposal, state: PartitionState
    ) -> PartitionState | None:
        isr = tuple(replica for replica in state.isr if replica != proposal.joining)
        return await self._store.update_isr(
            proposal.partition.topic_partition, replace(state, isr=isr)
        )

    def _undone(self, proposal: IsrProposal, state: PartitionState | None) -> None:
        if state is None:
            self._refused(proposal)
        else:
            self._void(proposal, state.partition_epoch)
            self._announce(proposal.partition.topic_partition)

    def _void(self, proposal: IsrProposal, partition_epoch: int | None) -> None:
        self._counts["voided"] += 1
        log.warning(
            "broker %s is not the incarnation that had caught up with %s: not in sync",
            proposal.joining,
            proposal.partition.topic_partition,
        )
        assert proposal.link is not None
        proposal.link.forget_epoch()
        proposal.partition.proposal_void(proposal, partition_epoch)

    # Announcing

    def _announce(self, topic_partition: TopicPartition) -> None:
        self._changed.add(topic_partition)
        if self._notifier is None:
            wait_s = self._notified_at + NOTIFY_EVERY_S - self._loop.time()
            self._notifier = self._loop.call_later(
                max(wait_s, NOTIFY_SOONEST_S), lambda: self._start(self._notify())
            )

    async def _notify(self) -> None:
        self._notifier = None
        self._notified_at = self._loop.time()
        changed, self._changed = self._changed, set()
        try:
            await self._store.notify_isr_changes(sorted(changed))
        except StoreError as error:
            log.warning("cannot announce %d ISR changes yet: %s", len(changed), error)
            for topic_partition in changed:
                self._announce(topic_partition)
            return
        self._counts["notified"] += len(changed)

    def announce_directory_failure(self) -> None:
        self._start(self._announce_directory_failure())

    async def _announce_directory_failure(self) -> None:
        while True:
            try:
                await self._store.notify_log_dir_failure(self._broker_id)
                return
            except StoreError as error:
                log.warning("cannot announce a failed directory yet: %s", error)
                await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        if self._notifier is not None:
            self._notifier.cancel()
        tasks = [*self._readers, *([self._writer] if self._writer is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def statistics(self) -> dict[str, int]:
        return {**self._counts, "queued": len(self._queue), "unannounced": len(self._changed)}
