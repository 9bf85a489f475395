"""Which starts are suspect: another boot, another disk; but not after a clean end."""

import random
from pathlib import Path

from odradek.broker.boot import MARK, machine_boot_id, may_have_forgotten, remember
from odradek.log.disk import RealDisk
from odradek.log.manager import LogManager
from odradek.log.offload import on_the_spot

DISK = RealDisk()


async def started(*directories: Path) -> LogManager:
    logs = LogManager(
        [str(path) for path in directories], DISK, lambda: 0, on_the_spot, rng=random.Random(1)
    )
    await logs.load()
    return logs


async def killed(logs: LogManager) -> None:
    """What a killed process leaves: no marker; its locks are gone."""
    live = logs.live_dirs
    await logs.close()
    for path in live:
        DISK.remove(f"{path}/.kafka_cleanshutdown")


async def test_a_killed_process_has_forgotten_nothing_and_a_lost_boot_may_have(
    tmp_path: Path,
) -> None:
    logs = await started(tmp_path)
    assert may_have_forgotten(DISK, logs, "first")
    remember(DISK, logs, "first")
    await killed(logs)

    logs = await started(tmp_path)
    assert not may_have_forgotten(DISK, logs, "first")
    assert may_have_forgotten(DISK, logs, "second")
    assert may_have_forgotten(DISK, logs, "")
    await logs.close()

    logs = await started(tmp_path)
    assert not may_have_forgotten(DISK, logs, "second"), "it was shut down cleanly"
    await logs.close()


async def test_a_new_disk_is_suspect_until_it_has_a_mark(tmp_path: Path) -> None:
    for _ in range(2):
        logs = await started(tmp_path)
        assert may_have_forgotten(DISK, logs, "boot")
        await logs.close()
    logs = await started(tmp_path)
    remember(DISK, logs, "boot")
    await logs.close()
    logs = await started(tmp_path)
    assert not may_have_forgotten(DISK, logs, "boot")
    await logs.close()


async def test_one_new_disk_among_several_is_enough(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    logs = await started(one, other)
    remember(DISK, logs, "boot")
    await killed(logs)
    (other / MARK).unlink()
    logs = await started(one, other)
    assert may_have_forgotten(DISK, logs, "boot")
    await logs.close()


def test_this_machine_has_one_boot_at_a_time() -> None:
    assert machine_boot_id() == machine_boot_id()
