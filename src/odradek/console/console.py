"""The parts of one console, how they are joined, and their life."""

import time
from pathlib import Path
from typing import Any

from odradek.console.access import Gate, Logins
from odradek.console.accounts import Accounts
from odradek.console.audit import Audit
from odradek.console.charts import Charts
from odradek.console.collector import Collector
from odradek.console.drills import Drills
from odradek.console.events import EventHub, States
from odradek.console.group_lags import GroupLags
from odradek.console.holder import Holder
from odradek.console.journal import JournalReader
from odradek.console.link import CLIENT_ID, Link
from odradek.console.loop_stall import LoopStall
from odradek.console.moves import Moves
from odradek.console.options import Options
from odradek.console.pipelines import TOPIC as PIPELINES_TOPIC
from odradek.console.pipelines import Pipelines
from odradek.console.problems import ProblemRow, Trends, problems_of
from odradek.console.searches import Searches
from odradek.console.workers import Workers
from odradek.controller.journal import EntryKind
from odradek.operations.journal_book import JournalBook, Kept

CHARTED_TOPICS = 200
CHARTED_GROUPS = 300
# Entries after which the picture is worth another look at once.
URGENT = (EntryKind.LEADERSHIP, EntryKind.CONTROLLER, EntryKind.REASSIGNMENT)


class Console:
    """What every route works with. `views` gives the states that tabs can watch, and `changes` the
    kinds of plans."""

    def __init__(self, options: Options, token: str) -> None:
        """Raises AccountsError, InvalidSecurity, or ValueError for a wrong bootstrap address."""
        from odradek.console.changes import KINDS
        from odradek.console.plans import Plans
        from odradek.console.views.states import states_of

        self.options = options
        accounts = Accounts.read(options.users) if options.users is not None else None
        self.audit = Audit(options.audit_file)
        self.gate = Gate(options, Logins(token, accounts), self.audit)
        self.link = Link(
            options.bootstrap,
            options.security,
            timeout_s=options.timeout_s,
            token=options.broker_token,
        )
        self.collector = Collector(self.link)
        self.charts = Charts()
        self.stall = LoopStall()
        self.trends = Trends()
        self.journal = JournalReader(self.link, JournalBook())
        self.group_lags = GroupLags(self.link, self.collector)
        self.workers = Workers(
            {
                "bootstrap": options.bootstrap,
                "security": dict(options.security),
                "client_id": CLIENT_ID,
                "timeout_s": options.timeout_s,
            },
            options.page_timeout_s,
        )
        self.searches = Searches(self.workers)
        self.pipelines = Pipelines(
            self.workers, lambda: self.collector.table.find(PIPELINES_TOPIC) is not None
        )
        moves_file = options.audit_file.with_suffix(".moves") if options.audit_file else None
        self.moves = Moves(self.link, self.collector, moves_file)
        self.plans = Plans(self, KINDS)
        self.decoders: dict[str, dict[str, Any]] = {}
        self._problems: tuple[object, list[ProblemRow]] = None, []
        states: States = states_of(self)
        self.hub = EventHub(states, self.picture)
        self.drills = self._open_drills()
        self._join()

    def _open_drills(self) -> Drills | None:
        """Only where the program that holds the brokers has started this console."""
        if self.options.holder is None or self.options.read_only:
            return None
        return Drills(
            Holder(self.options.holder),
            self.link,
            self.collector,
            self.journal.book,
            lambda id: self.hub.touch("drill", argument=id),
        )

    def _join(self) -> None:
        self.collector.listen(self._changed)
        self.group_lags.listen(self._groups_read)
        self.journal.listen(self._recorded)
        self.searches.listen(lambda id: self.hub.touch("search", argument=id))
        self.pipelines.listen(lambda: self.hub.touch("pipelines"))

    @property
    def static(self) -> Path:
        return Path(__file__).parent / "static"

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def start(self) -> None:
        self.stall.start()
        if self.drills is not None:
            await self.drills.holder.start()
        for part in (self.collector, self.group_lags, self.pipelines, self.moves):
            part.start()

    def end_streams(self) -> None:
        """Tabs are sent no more: a server that stops waits for the requests that it serves."""
        self.hub.close()
        self.workers.end_own()

    async def close(self) -> None:
        self.stall.stop()
        self.end_streams()
        await self.searches.close()
        if self.drills is not None:
            await self.drills.close()
        parts = (self.journal, self.pipelines, self.moves, self.group_lags, self.collector)
        for part in parts:
            await part.close()
        await self.workers.close()
        await self.link.close()

    def picture(self) -> dict[str, Any]:
        """How old what is shown is, and how much is wrong: in the frame of every screen."""
        collector = self.collector
        return {
            "age_s": collector.age_s,
            "ok": collector.is_answering,
            "problems": len(self.problems()),
            "at_ms": self.now_ms(),
        }

    def problems(self) -> list[ProblemRow]:
        """What the overview lists; found again if something was read since, or a second is over."""
        collector = self.collector
        version = (
            collector.version,
            self.group_lags.version,
            collector.failure,
            self.journal.book.added,
            int(time.monotonic()),
        )
        if version != self._problems[0]:
            self._problems = version, problems_of(self)
        return self._problems[1]

    # What changes what

    def _changed(self, what: str) -> None:
        touched = {
            "brokers": ("overview", "brokers", "controller"),
            "topics": ("overview", "brokers", "topics", "topic"),
            "rates": ("overview", "brokers", "controller"),
            "sizes": ("brokers", "topic"),
            "moves": ("moves", "overview"),
        }
        self.hub.touch(*touched.get(what, ()))
        if what == "brokers":
            self.journal.follow()
        elif what == "rates":
            self._chart_rates()
            # Followers whose broker has restarted, or whose address was not known before.
            self.journal.follow()
            self.group_lags.look_at(self.hub.watched("group"))
            self.collector.wants_states = bool(self.hub.watched("controller"))

    def _recorded(self, kept: Kept) -> None:
        self.hub.journal(kept)
        self.hub.touch("controller")
        age_ms = self.now_ms() - kept.entry.time_ms
        if kept.entry.kind in URGENT and age_ms < 60_000:
            self.collector.hurry()

    def _groups_read(self, ids: list[str]) -> None:
        self.hub.touch("groups", "overview")
        now = time.time()
        groups = [self.group_lags.groups[id] for id in ids if id in self.group_lags.groups]
        groups.sort(key=lambda group: -(group.lag or 0))
        for group in groups[:CHARTED_GROUPS]:
            self.charts.add(f"group.{group.id}.lag", now, group.lag)
            self.charts.add(f"group.{group.id}.lag_s", now, group.behind_s)
            self.hub.touch("group", argument=group.id)

    def _chart_rates(self) -> None:
        now, charts, activity = time.time(), self.charts, self.collector.activity
        self.trends.add(now, self.problems())
        known = [(id, each) for id, each in activity.brokers.items() if each is not None]
        if not known:
            return
        for name in ("records_in", "bytes_in", "bytes_out", "requests"):
            charts.add(f"cluster.{name}", now, sum(getattr(each, name) for _, each in known))
            for id, each in known:
                charts.add(f"broker.{id}.{name}", now, getattr(each, name))
        for id, each in known:
            charts.add(f"broker.{id}.produce_ms_p99", now, each.produce_ms_p99)
            charts.add(f"broker.{id}.busy", now, self.collector.busy.get(id))
        busiest = sorted(activity.topics.items(), key=lambda item: -item[1].bytes_in)
        for topic, rates in busiest[:CHARTED_TOPICS]:
            charts.add(f"topic.{topic}.bytes_in", now, rates.bytes_in)
            charts.add(f"topic.{topic}.records_in", now, rates.records_in)
