"""The order of paired and unpaired updates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from priormatch.matching.lpm import is_paired, paired_share


def order(updates: int, paired: int, unpaired: int) -> str:
    return "".join("P" if is_paired(each, paired, unpaired) else "U" for each in range(updates))


@pytest.mark.parametrize(
    ("mixing", "expected"),
    [
        ((1, 4), "UUUP UUUUP UUUUP"),
        ((1600, 6400), "UUUP UUUUP UUUUP"),
        ((1, 1), "PUPUPUPU"),
        ((4, 1), "PPPU PPPPU PPPPU"),
        ((1, 9), "UUUUUUUUP UUUUUUUUUP"),
    ],
)
def test_the_authors_orders(mixing: tuple[int, int], expected: str) -> None:
    expected = expected.replace(" ", "")
    assert order(len(expected), *mixing) == expected


@given(paired=st.integers(1, 12), unpaired=st.integers(1, 12), updates=st.integers(1, 200))
def test_shares_are_kept_and_the_rarer_kind_comes_evenly(paired: int, unpaired: int, updates: int) -> None:
    found = order(updates, paired, unpaired)
    assert abs(found.count("P") - updates * paired / (paired + unpaired)) < 1
    rarer, other = ("P", "U") if paired <= unpaired else ("U", "P")
    gaps = {len(gap) for gap in found.split(rarer)[1:-1]}
    assert not gaps or max(gaps) - min(gaps) <= 1, f"{other} between {rarer}"


def test_the_share_of_a_batch() -> None:
    assert paired_share(1, 4) == 0.2
    assert paired_share(1, 1) == 0.5
