"""`odradek consume` on a batch with a valid checksum around contents that are not."""

from collections.abc import Iterator

import pytest
from tests.cli.conftest import CommandLine

from odradek import Cluster
from odradek.wire.batch import HEADER_BYTES, scan, set_crc

pytestmark = pytest.mark.process

BROKER = 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1) as running:
        yield running


def damage_second_batch(cluster: Cluster, topic: str) -> None:
    """Give the first record of the second batch a length it does not have."""
    (segment,) = cluster.directory_of(BROKER).glob(f"{topic}-0/*.log")
    data = bytearray(segment.read_bytes())
    header = list(scan(data))[1]
    data[header.position + HEADER_BYTES] = 0x7F
    set_crc(data, header)
    segment.write_bytes(data)


def test_it_is_reported_in_one_line_and_can_be_skipped(
    odradek: CommandLine, cluster: Cluster
) -> None:
    odradek("topics", "create", "t", "--partitions", "1")
    for value in ("one\n", "two\n", "three\n"):
        odradek("produce", "t", input=value)
    cluster.stop(BROKER)
    damage_second_batch(cluster, "t")
    cluster.start(BROKER)
    assert "partition t-0: the batch at offset 1 cannot be decoded" in odradek.refused(
        "consume", "t"
    )
    for more in ([], ["--group", "g"]):
        result = odradek.run("consume", "t", "--skip-undecodable", *more)
        assert result.exit_code == 0, result.output
        assert result.stdout == "one\nthree\n"
        (line,) = result.stderr.splitlines()
        assert line.startswith("skipped: partition t-0: the batch at offset 1")
        assert line.endswith("continuing at offset 2")
