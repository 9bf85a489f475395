"""What the allocator keeps, counted in page faults."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
from odradek.broker.memory import keep_free_memory, return_free_memory

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        bytearray(b"x") * (4 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults(20)
keep_free_memory()
faults(2)
kept = faults(20)
return_free_memory()
print(before, kept, faults(1))
"""


@pytest.mark.process
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to")
def test_the_memory_of_large_requests_is_kept_and_can_be_given_back() -> None:
    output = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    ).stdout
    before, kept, after_return = map(int, output.split())
    assert kept < 20, f"page faults for 80 MB, of {before} without keeping memory"
    assert after_return > kept
