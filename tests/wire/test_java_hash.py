"""Java's String.hashCode."""

import pytest

from odradek.wire.java_hash import java_hash


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96354),
        ("test", 3556498),
        ("__consumer_offsets", -970371369),
        ("polygenelubricants", -(2**31)),
        ("é€𝄞", 16751501),
    ],
)
def test_the_hash_is_javas(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed
