"""`pytest tests/controller/scenarios --rewrite-scenarios` rewrites the transcripts."""

import pytest
from tests.store.conftest import zookeeper_address

__all__ = ["zookeeper_address"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write the transcripts instead of comparing them",
    )
