"""The names of partition directories, by Kafka's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.directories import DirectoryKind, UnexpectedDirectory, name_for, parse_name
from odradek.wire.topics import TopicPartition

UNIQUE = 0x0123456789ABCDEF0123456789ABCDEF


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        ("t-0", "t", 0, DirectoryKind.CURRENT),
        ("a-b-12", "a-b", 12, DirectoryKind.CURRENT),
        ("a.b-1", "a.b", 1, DirectoryKind.CURRENT),
        ("t-0.0123456789abcdef0123456789abcdef-delete", "t", 0, DirectoryKind.DELETE),
        ("a.b-3.0123-future", "a.b", 3, DirectoryKind.FUTURE),
        ("t-7.x-stray", "t", 7, DirectoryKind.STRAY),
        ("x-delete-0", "x-delete", 0, DirectoryKind.CURRENT),
    ],
)
def test_names(name: str, topic: str, partition: int, kind: DirectoryKind) -> None:
    assert parse_name(name) == (TopicPartition(topic, partition), kind)


@pytest.mark.parametrize(
    "name", ["", "x", "-", "-0", "t-", "t-x", "lost+found", "t-0-delete", "t-0.-future", "t-1 "]
)
def test_what_is_no_partition(name: str) -> None:
    with pytest.raises(UnexpectedDirectory):
        parse_name(name)


@given(
    st.text("abcXYZ019._-", min_size=1, max_size=249),
    st.integers(0, 2**31 - 1),
    st.sampled_from(list(DirectoryKind)),
    st.integers(0, 2**128 - 1),
)
def test_what_is_made_can_be_read(
    topic: str, partition: int, kind: DirectoryKind, unique: int
) -> None:
    made = name_for(TopicPartition(topic, partition), kind, unique)
    found = parse_name(made)
    assert found.topic_partition.partition == partition
    if kind is DirectoryKind.CURRENT and topic.endswith(("-delete", "-future", "-stray")):
        return
    assert found.kind is kind
    assert topic.startswith(found.topic_partition.topic)
    if kind in (DirectoryKind.DELETE, DirectoryKind.STRAY):
        assert len(made) <= 255
    else:
        assert found.topic_partition.topic == topic


def test_a_long_name_is_shortened_for_deletion() -> None:
    name = name_for(TopicPartition("x" * 249, 10), DirectoryKind.DELETE, UNIQUE)
    assert len(name) == 255
    assert name.endswith("x-10.0123456789abcdef0123456789abcdef-delete")
