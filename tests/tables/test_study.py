"""Studies on folders laid out like the real corpora."""

import shutil
from dataclasses import replace

import pytest
from conftest import sentences
from tiny_run import command

from priormatch.config import recipe_path
from priormatch.tables.study import LAYOUTS, open_study, wanted_files
from priormatch.tables.systems import matched, rows_of

TINY = (  # noqa: SIM905
    "audio.workers=0 tokenizer.pieces=31 tokenizer.source=text model.n_mels=20 model.channels=[4,6] model.blocks=[1,1]"
    " model.kernel=5 model.size=48 model.longest_output=24 training.updates=4 training.validate_every=2"
    " training.batch.seconds=8 training.batch.utterances=0 training.keep.B.update=2 training.keep.B.score=0"
    " training.keep.C.update=2 training.keep.C.score=0"
    " prior.model.embedding=12 prior.model.width=8 prior.model.bottlenecks=[[4,8,1]] prior.model.head=10"
    " prior.updates=2 prior.validate_every=1 prior.batch_tokens=200 matching.updates=2 matching.refresh_every=1"
    " matching.batch.seconds=8 matching.batch.utterances=0 matching.max_proposal_cer=1000000 matching.length_filter=[]"
).split()
KEPT = [
    f"prior.keep.weaker{number}.{key}={value}"
    for number in range(1, 5)
    for key, value in (("update", 1), ("score", 0))
]


@pytest.fixture
def folder(tiny_corpus, tmp_path, monkeypatch):
    """A folder with a manifest of tones for each name, and text."""
    monkeypatch.chdir(tmp_path)

    def make(scale):
        out = tmp_path / scale
        out.mkdir()
        for number, name in enumerate(wanted_files(scale)):
            if name.endswith(".txt"):
                (out / name).write_text("".join(f"{text}\n" for text in sentences(40, seed=number)))
            else:
                made = tiny_corpus(sentences(6, seed=number, most_words=3), name.removesuffix(".jsonl.gz"))
                shutil.copy(made, out / name)
        return out

    return make


@pytest.mark.parametrize("scale", LAYOUTS)
def test_a_table_runs_on_a_folder_laid_out_like_the_real_one(folder, scale, capsys):
    data = folder(scale)
    words = ("table", "2", "--scale", scale, "--data", data, "--rows", "13,23", *TINY, *KEPT)
    assert command(*words) == 0
    said = capsys.readouterr()
    systems = {each.name for each in (data.parent / f"runs/table-{scale}/seed-0/systems").iterdir()}
    assert systems == {"matched-clean-start=C", "matched-all-start=C"}
    assert "9.00" in said.out, "the paper's"
    assert command(*words, "--seeds", "0,1", "--jobs", "2") == 0
    page = (data.parent / f"runs/table-{scale}/tab2_beam_mix-rows-13,23.tsv").read_text().splitlines()
    assert page[0].endswith("ours_dev_other_wer_seed0\tours_dev_other_wer_seed1")
    assert all("NA" not in line for line in page[1:])


def test_what_a_folder_lacks_is_named(folder, capsys):
    data = folder("paper")
    (data / "dev-other.jsonl.gz").unlink()
    assert command("table", "2", "--scale", "paper", "--data", data) == 2
    assert "lacks dev-other.jsonl.gz: prepare the paper scale's data there first" in capsys.readouterr().err


def test_main_results_are_trained_for_longer_at_paper_scale_unless_told_otherwise(folder):
    data, recipe = folder("paper"), recipe_path("table-paper")
    study = open_study("paper", recipe, 0, data, [])
    rows = [(row, system) for row, system in rows_of("tab7_main") if system is not None]
    updates = {study.settings_of(system).matching.updates for _, system in rows}
    assert updates == {3_200_000}, "for all of them"
    default, best = matched(), replace(matched(), main=True)
    assert study.settings_of(default).matching.updates == 1_600_000
    assert study.settings_of(best).matching.reference_lengths == "asr_lm"
    assert study.folder_of(best).name == f"{study.folder_of(default).name}-longer"
    told = open_study("paper", recipe, 0, data, ["matching.updates=1000"])
    assert told.settings_of(best).matching.updates == 1000
