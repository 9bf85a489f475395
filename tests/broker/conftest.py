"""A broker process that every test of a module may use, and whose log must be clean at the end."""

from collections.abc import Iterator

import pytest
from tests.broker.processes import BrokerProcess

SETTINGS = ("group.initial.rebalance.delay.ms=0",)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), *SETTINGS).start()
    yield process
    if process.is_running:
        process.stop()
    assert not process.tracebacks, "\n".join(process.log[-100:])
