"""SpecAugment hides bands, never more than it may."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from priormatch.config import AugmentSettings
from priormatch.data.augment import numbers_of, spec_augment


def hidden(settings: AugmentSettings, lengths: list[int], mels: int) -> torch.Tensor:
    features = torch.ones(len(lengths), max(lengths), mels)
    noise = torch.rand(len(lengths), numbers_of(settings))
    found = spec_augment(features, torch.tensor(lengths), noise, settings)
    assert torch.all((found == 0) | (found == 1))
    assert torch.all(features == 1), "the input is left alone"
    return found == 0


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    masks=st.integers(0, 3),
    width=st.integers(0, 30),
    seed=st.integers(0, 1000),
)
def test_time_masks_keep_to_their_width_share_and_utterance(
    lengths: list[int], masks: int, width: int, seed: int
) -> None:
    torch.manual_seed(seed)
    found = hidden(AugmentSettings(time_masks=masks, time_width=width), lengths, 4)
    assert torch.equal(found, found[:, :, :1].expand_as(found)), "a time mask hides all bands"
    for row, length in zip(found[:, :, 0], lengths, strict=True):
        assert not row[length:].any()
        assert row.sum() <= masks * min(width, int(length * 0.2))


@given(masks=st.integers(0, 3), width=st.integers(0, 40), seed=st.integers(0, 1000))
def test_frequency_masks_keep_to_their_width(masks: int, width: int, seed: int) -> None:
    torch.manual_seed(seed)
    found = hidden(AugmentSettings(frequency_masks=masks, frequency_width=width), [5, 3], 20)
    assert torch.equal(found, found[:, :1].expand_as(found)), "a frequency mask hides all frames"
    assert torch.all(found[:, 0].sum(dim=-1) <= masks * min(width, 20))


def test_a_mask_is_one_band_and_every_width_and_place_occurs() -> None:
    found = hidden(AugmentSettings(frequency_masks=1, frequency_width=3), [1] * 2000, 6)[:, 0].long()
    edges = found.diff(dim=-1).abs().sum(dim=-1) + found[:, 0] + found[:, -1]
    assert set(edges.tolist()) == {0, 2}
    widths = torch.bincount(found.sum(dim=-1), minlength=4) / 2000
    torch.testing.assert_close(widths, torch.full((4,), 0.25), atol=0.05, rtol=0)
    assert torch.all(found.sum(dim=0) > 0)


def test_utterances_are_masked_independently() -> None:
    found = hidden(AugmentSettings(frequency_masks=1), [5] * 50, 80)
    assert len({tuple(row.tolist()) for row in found[:, 0]}) > 10


def test_no_masks_change_nothing() -> None:
    features = torch.randn(2, 9, 4)
    lengths, noise = torch.tensor([9, 4]), torch.zeros(2, 0)
    assert torch.equal(spec_augment(features, lengths, noise, AugmentSettings()), features)
