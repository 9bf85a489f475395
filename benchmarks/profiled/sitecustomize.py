"""Lets a broker process be profiled while it runs: Python imports this at its start.

SIGUSR1 begins a profile; SIGUSR2 ends it and writes it to the file that PROFILE_TO names, with the
process id in place of its `{pid}`.
"""

import cProfile
import os
import signal

_profile = cProfile.Profile()


def _begin(*_: object) -> None:
    _profile.clear()
    _profile.enable()


def _end(*_: object) -> None:
    _profile.disable()
    path = os.environ["PROFILE_TO"].format(pid=os.getpid())
    _profile.dump_stats(f"{path}.part")
    os.replace(f"{path}.part", path)


if "PROFILE_TO" in os.environ:
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _end)
