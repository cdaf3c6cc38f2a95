"""What the doctor says of settings that fit each other badly."""

import pytest

from priormatch.config import load_settings, recipe_names, recipe_path
from priormatch.doctor.settings_checks import findings

MASKS = ["training.augment.frequency_masks=2", "training.augment.frequency_width=27"]


@pytest.mark.parametrize(("mels", "given", "told"), [(40, MASKS, 1), (80, MASKS, 0), (40, MASKS[1:], 0)])
def test_masks_that_hide_most_of_the_sound_are_told_of(mels, given, told):
    found = list(findings(load_settings(None, [f"model.n_mels={mels}", *given])))
    assert [str(each) for each in found] == told * [
        "warning  training.augment.frequency_width=27 may mask most of the model.n_mels=40 mel bands; "
        "lower it to about 10"
    ]


@pytest.mark.parametrize("name", recipe_names())
def test_the_recipes_that_come_along_fit(name):
    assert not list(findings(load_settings(recipe_path(name))))
