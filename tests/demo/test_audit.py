"""The audit finds what is wrong, and nothing where nothing is."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

from odradek.demo.audit import Audit, balance
from odradek.demo.clickstream import LAST_PAGE, ClickStream

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def books(**changes: Any) -> Audit:
    good: dict[str, Any] = {
        "acknowledged": {1, 2, 3},
        "uncertain": {9},
        "landed": Counter([1, 2]),
        "derived": Counter([1, 2]),
        "dead": Counter([3]),
        "counts": [(NOON, "/", 2)],
        "recounted": {(NOON, "/"): 2},
    }
    return balance(**{**good, **changes})


def test_books_that_balance() -> None:
    assert books().balances
    assert books(landed=Counter([1, 2, 9])).balances  # it was uncertain
    assert books(derived=Counter([1, 2, 9])).balances
    assert books().lines()[0] == "the books balance:"


def test_each_way_in_which_they_may_not() -> None:
    assert books(landed=Counter([1])).missing == {2}
    assert books(landed=Counter([1, 2, 2])).repeated == {2}
    assert books(landed=Counter([1, 2, 3])).repeated == {3}
    assert books(landed=Counter([1, 2, 7])).unexplained == {7}
    assert books(derived=Counter([2])).missing == {1}
    assert books(derived=Counter([1, 2, 2])).repeated == {2}
    assert books(derived=Counter([1, 2, 3])).repeated == {3}
    assert books(derived=Counter([1, 2, 8])).unexplained == {8}
    assert books(dead=Counter([3, 3])).repeated == {3}
    assert books(counts=[(NOON, "/", 1)]).wrong_counts == (f"{NOON} /: counted 1, there are 2",)
    assert "counted twice" in books(counts=[(NOON, "/", 2), (NOON, "/", 2)]).wrong_counts[0]
    assert "were not counted" in books(counts=[]).wrong_counts[0]
    bad = books(landed=Counter([1]))
    assert not bad.balances
    assert bad.lines()[0] == "the books DO NOT BALANCE:"
    assert replace(bad, missing=frozenset()).balances


def test_clicks_are_json_but_for_a_few() -> None:
    stream = ClickStream("h:1", "t", 1, Random(4), lambda: NOON)
    values = [stream.click(number)[1] for number in range(2000)]
    broken = [value for value in values if not value.endswith(b"}")]
    assert 5 < len(broken) < 50
    assert all(b'"id": ' in value for value in broken)
    user, last = stream.click(2000, is_last=True)
    assert LAST_PAGE.encode() in last
    assert b"13:00:00" in last
    assert user.startswith("user-")
