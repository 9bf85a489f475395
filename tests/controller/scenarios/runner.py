"""Runs a scenario: commands in, a transcript out.

A scenario is a text file. A line that does not begin with `>` is a command; the `>` lines after
it are what came of it. What came of it is the journal and what brokers did, in a form that does
not depend on the order in which independent things happen: for each partition, replica and broker
the chain of what it went through, sorted by name.

    cluster brokers=1,2,3 controllers=1   the brokers, and those that have a controller; the first
                                          of these is elected
    topic t replicas=1,2;2,3              create a topic, one replica list for each partition
    expand t replicas=3,1                 add partitions
    delete t                              ask for deletion
    kill 2, start 2, silence 2, speak 2
    hold 1, release 1                     keep watch events import re
from node 1, and let them go
    depose                                delete /controller behind the controller's back
    expire 1                              end node 1's store session (memory store only)
    isr t-0 1,2 [silently]                the leader writes an ISR (and notifies the controller)
    decide t-0 1,2 ... land t-0           the same, with something in between
    race t-0 isr 1,2                      the same, right before the controller writes the state
    break 2 t-0, mend 2 t-0               the disk of a replica fails, or is replaced
    undeletable 2 t-0, deletable 2 t-0    a broker answers StopReplica with an error
    shutdown 2                            ask for a controlled shutdown
    elect preferred|unclean t-0           ElectLeaders
    reassign t-0 2,3 t-1 cancel [via=1]   AlterPartitionReassignments
    list                                  ListPartitionReassignments
    legacy-reassign t-0 2,3, legacy-elect t-0
    config t name=value                   set a topic's configuration
    crash at B3                           the controller's process ends when it reaches that step
    state t-0, nodes t                    what the store has
    settle                                come to rest, and print what happened

It runs on a cluster of puppets (cluster.py) or of real brokers (real.py).
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from odradek.controller.elections import ElectionType
from odradek.controller.journal import Entry, EntryKind
from odradek.controller.partition_outcome import PartitionOutcome
from odradek.store import paths, payloads
from odradek.store.payloads import TopicNode
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from tests.controller.scenarios.cluster import PuppetCluster
    from tests.controller.scenarios.real import RealCluster

    AnyCluster: TypeAlias = PuppetCluster | RealCluster


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """Each command line with the output lines that follow it; comments belong to the next one."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(">") and found:
            found[-1][1].append(line)
        else:
            found.append((line, []))
    return found


def key_of(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(int(id) for id in text.split(",") if id)


class Runner:
    """Carries the commands out on a cluster."""

    def __init__(self, make_cluster: "Callable[[Mapping[str, int | bool]], AnyCluster]") -> None:
        self._make_cluster = make_cluster
        self._cluster: AnyCluster | None = None
        self._decided: dict[TopicPartition, Callable[[], Awaitable[bool]]] = {}

    @property
    def cluster(self) -> "AnyCluster":
        assert self._cluster is not None, "a scenario begins with: cluster brokers=..."
        return self._cluster

    async def close(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()

    async def run(self, line: str) -> list[str]:
        """The output of one command."""
        command, *words = line.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        handler: Callable[[list[str], dict[str, str]], Awaitable[list[str] | None]] = getattr(
            self, f"do_{command.replace('-', '_')}"
        )
        output = await handler(plain, named) or []
        await self.cluster.settle()
        return [f"> {line}" for line in output]

    # The cluster

    async def do_cluster(self, words: list[str], named: dict[str, str]) -> list[str]:
        config = {
            name: value == "true" if value in ("true", "false") else int(value)
            for name, value in named.items()
            if name not in ("brokers", "controllers")
        }
        self._cluster = self._make_cluster(config)
        brokers = ids_of(named["brokers"])
        controllers = ids_of(named["controllers"]) if "controllers" in named else brokers[:1]
        await self._cluster.open(brokers, controllers)
        return await self.do_settle([], {})

    async def do_kill(self, words: list[str], named: dict[str, str]) -> None:
        await self.cluster.kill(int(words[0]))

    async def do_start(self, words: list[str], named: dict[str, str]) -> None:
        await self.cluster.start(int(words[0]))

    async def do_silence(self, words: list[str], named: dict[str, str]) -> None:
        self.cluster.members[int(words[0])].puppet.silence()

    async def do_speak(self, words: list[str], named: dict[str, str]) -> None:
        self.cluster.members[int(words[0])].puppet.speak()

    async def do_hold(self, words: list[str], named: dict[str, str]) -> None:
        self.cluster.members[int(words[0])].held.hold()

    async def do_release(self, words: list[str], named: dict[str, str]) -> None:
        self.cluster.members[int(words[0])].held.release()

    async def do_depose(self, words: list[str], named: dict[str, str]) -> None:
        await self.cluster.admin.session.delete(paths.CONTROLLER)

    async def do_expire(self, words: list[str], named: dict[str, str]) -> None:
        await self.cluster.expire(int(words[0]))

    # Topics

    async def do_topic(self, words: list[str], named: dict[str, str]) -> None:
        lists = dict(enumerate(map(ids_of, named["replicas"].split(";"))))
        await self.cluster.admin.create_topic(words[0], TopicNode(lists))

    async def do_expand(self, words: list[str], named: dict[str, str]) -> None:
        node = await self.cluster.admin.topic(words[0])
        assert node is not None
        lists = dict(node.partitions)
        for replicas in named["replicas"].split(";"):
            lists[len(lists)] = ids_of(replicas)
        grown = TopicNode(lists, node.adding, node.removing, node.topic_id)
        await self.cluster.admin.set_topic(words[0], grown)

    async def do_delete(self, words: list[str], named: dict[str, str]) -> None:
        await self.cluster.admin.requests.request_deletion(words[0])

    async def do_config(self, words: list[str], named: dict[str, str]) -> None:
        await self.cluster.admin.configs.set(paths.ConfigKind.TOPICS, words[0], named)
        await self.cluster.announce_config(words[0])

    # Replicas

    async def do_isr(self, words: list[str], named: dict[str, str]) -> list[str]:
        key = key_of(words[0])
        passed = await self.cluster.leader_of(key).change_isr(
            key, ids_of(words[1]), notify="silently" not in words
        )
        return [] if passed else [f"isr {key}: the leader's write was refused, its version is old"]

    async def do_decide(self, words: list[str], named: dict[str, str]) -> None:
        key = key_of(words[0])
        leader = self.cluster.leader_of(key)
        self._decided[key] = await leader.decide_later(key, ids_of(words[1]))

    async def do_land(self, words: list[str], named: dict[str, str]) -> list[str]:
        key = key_of(words[0])
        passed = await self._decided.pop(key)()
        return [] if passed else [f"isr {key}: the leader's write was refused, its version is old"]

    async def do_race(self, words: list[str], named: dict[str, str]) -> None:
        key = key_of(words[0])
        leader = self.cluster.leader_of(key)
        held = self.cluster.members[self.cluster.controller().broker_id].held
        land = await leader.decide_later(key, ids_of(words[2]))
        held.race_to_write(paths.partition_state(key), land)

    async def do_break(self, words: list[str], named: dict[str, str]) -> None:
        await self.cluster.members[int(words[0])].puppet.fail_directory(key_of(words[1]))

    async def do_mend(self, words: list[str], named: dict[str, str]) -> None:
        self.cluster.members[int(words[0])].puppet.mend_directory(key_of(words[1]))

    async def do_undeletable(self, words: list[str], named: dict[str, str]) -> None:
        self.cluster.members[int(words[0])].puppet.refuse_deletion(key_of(words[1]))

    async def do_deletable(self, words: list[str], named: dict[str, str]) -> None:
        self.cluster.members[int(words[0])].puppet.allow_deletion(key_of(words[1]))

    # Requests

    async def do_shutdown(self, words: list[str], named: dict[str, str]) -> list[str]:
        id = int(words[0])
        epoch = self.cluster.members[id].puppet.epoch
        left = await self.cluster.call(self.cluster.controller().controlled_shutdown(id, epoch))
        assert isinstance(left, set)
        return [f"shutdown {id}: still leads [{','.join(map(str, sorted(left)))}]"]

    async def do_elect(self, words: list[str], named: dict[str, str]) -> list[str]:
        kind = ElectionType[words[0].upper()]
        keys = [key_of(word) for word in words[1:]] or None
        return await self._ask("elect", self.cluster.controller().elect_leaders(kind, keys))

    async def do_reassign(self, words: list[str], named: dict[str, str]) -> list[str]:
        moves = {
            key_of(name): None if to == "cancel" else ids_of(to)
            for name, to in zip(words[::2], words[1::2], strict=True)
        }
        via = int(named["via"]) if "via" in named else None
        return await self._ask("reassign", self.cluster.controller(via).alter_reassignments(moves))

    async def _ask(
        self, what: str, request: Awaitable[dict[TopicPartition, PartitionOutcome]]
    ) -> list[str]:
        try:
            results = await self.cluster.call(request)
        except KafkaError as error:
            return [f"{what}: {error.error.name}"]
        if results is None:
            return [f"{what}: no answer"]
        assert isinstance(results, dict)
        return [
            f"{what} {key}: {result.error.name}"
            for key, result in sorted(results.items())
            if result.error is not ErrorCode.NONE
        ]

    async def do_list(self, words: list[str], named: dict[str, str]) -> list[str]:
        listed = await self.cluster.call(self.cluster.controller().list_reassignments(None))
        assert isinstance(listed, dict)
        return [f"list {key}: {assignment}" for key, assignment in sorted(listed.items())]

    async def do_legacy_reassign(self, words: list[str], named: dict[str, str]) -> None:
        moves = {key_of(n): ids_of(to) for n, to in zip(words[::2], words[1::2], strict=True)}
        data = payloads.encode_reassignment(moves)
        await self.cluster.admin.session.create(paths.REASSIGN_PARTITIONS, data)

    async def do_legacy_elect(self, words: list[str], named: dict[str, str]) -> None:
        data = payloads.encode_partitions(map(key_of, words))
        await self.cluster.admin.session.create(paths.PREFERRED_ELECTION, data)

    async def do_crash(self, words: list[str], named: dict[str, str]) -> None:
        self.cluster.traps.append(" ".join(words[1:]))

    # Looking

    async def do_state(self, words: list[str], named: dict[str, str]) -> list[str]:
        key = key_of(words[0])
        state = await self.cluster.admin.partition_state(key)
        if state is None:
            return [f"state {key}: none"]
        isr = ",".join(map(str, state.isr))
        return [
            f"state {key}: leader={state.leader} epoch={state.leader_epoch} isr=[{isr}] "
            f"by controller epoch {state.controller_epoch}"
        ]

    async def do_nodes(self, words: list[str], named: dict[str, str]) -> list[str]:
        topic = words[0]
        node = await self.cluster.admin.topic(topic)
        asked = topic in await self.cluster.admin.requests.deletions()
        if node is None:
            return [
                f"nodes {topic}: no topic, deletion {'asked for' if asked else 'not asked for'}"
            ]
        return [
            f"nodes {topic}: partitions={_lists(node.partitions)} adding={_lists(node.adding)} "
            f"removing={_lists(node.removing)}{', deletion asked for' if asked else ''}"
        ]

    async def do_settle(self, words: list[str], named: dict[str, str]) -> list[str]:
        lines = list(transcript(self.cluster.entries))
        self.cluster.entries.clear()
        for id in sorted(self.cluster._puppets):
            deeds = self.cluster._puppets[id].deeds
            chains: dict[str, list[str]] = {}
            for subject, deed in deeds:
                chain = chains.setdefault(subject, [])
                if not chain or chain[-1] != deed:
                    chain.append(deed)
            deeds.clear()
            lines += (
                f"broker {id}: {' '.join([subject, ' -> '.join(chain)]).strip()}"
                for subject, chain in sorted(chains.items())
            )
        return lines


def _lists(lists: Mapping[int, tuple[int, ...]]) -> str:
    return ";".join(f"{n}:{','.join(map(str, ids))}" for n, ids in sorted(lists.items())) or "-"


def transcript(entries: Iterable[tuple[int, Entry]]) -> Iterable[str]:
    """The journal of one settling, controllers first, then everything else by name."""
    chains: dict[str, list[str]] = {}
    failures: list[str] = []
    for id, entry in entries:
        subject = entry.partition if entry.topic is None else entry.topic
        if entry.kind is EntryKind.CONTROLLER:
            why = f" ({entry.why})" if entry.why and "crashed" not in entry.after else ""
            yield f"controller {id}: {entry.after}{why}"
        elif entry.kind is EntryKind.FAILURE:
            where = "" if entry.broker is None else f"@{entry.broker}"
            change = f": {entry.before} -> {entry.after}" if entry.before else ""
            failures.append(f"refused {subject or ''}{where}{change} ({entry.why})")
        elif entry.kind is EntryKind.RESPONSE:
            failures.append(
                f"answer of {entry.broker}: {entry.after} {','.join(map(str, entry.partitions))}"
            )
        elif entry.kind in (EntryKind.REASSIGNMENT, EntryKind.DELETION):
            step = entry.after.split(" ", 1)
            is_step = entry.kind is EntryKind.REASSIGNMENT and step[0][0] in "UAB"
            chains.setdefault(f"{entry.kind.value} {subject}", []).append(
                step[0] if is_step else entry.after
            )
        elif entry.kind is not EntryKind.REQUEST:
            where = f"@{entry.broker}" if entry.kind is EntryKind.REPLICA else ""
            chain = chains.setdefault(f"{entry.kind.value} {subject}{where}", [])
            if not chain and entry.before:
                chain.append(entry.before)
            chain.append(entry.after)
    order = {"partition": 0, "leadership": 1, "replica": 2, "reassignment": 3, "deletion": 4}
    for name, chain in sorted(
        chains.items(), key=lambda item: (order[item[0].split()[0]], item[0])
    ):
        yield f"{name}: {' -> '.join(chain)}"
    yield from sorted(set(failures))


# Real brokers know which client asked for a change; puppets are asked without one.
REQUESTER = re.compile(r" \(client:\d+ \(client id 'scenario'\)\)")


async def replay(scenario: str, runner: Runner) -> str:
    """The scenario as it goes today."""
    lines: list[str] = []
    for command, _ in commands_of(scenario):
        lines.append(command)
        if command.strip() and not command.startswith("#"):
            lines += [REQUESTER.sub("", line) for line in await runner.run(command)]
    return "\n".join(lines) + "\n"
