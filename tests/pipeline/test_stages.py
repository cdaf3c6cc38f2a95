"""What a run says beforehand about its stages."""

from pathlib import Path

from priormatch.pipeline.run import decisions, in_words
from priormatch.runs.stage import Decision, Stage, Wanted

RUN = Path("runs/x")


def decision(
    name: str, place: str = "", finished: bool = False, reason: str = "", seconds: float = 0
) -> Decision:
    return Decision(RUN / name, RUN / place if place else None, finished, reason, seconds or None)


def test_every_stage_is_told_once() -> None:
    found = [
        decision("data", "data", finished=True),
        decision("tokenizer", "tokenizer", finished=True),
        decision("prior", "prior.2", finished=True, reason="prior.updates changed", seconds=9),
        decision("supervised", reason="model.size changed", seconds=190),
        decision("lengths", "lengths.1", reason="inputs.model changed"),
        decision("lpm", "lpm"),
        decision("decoded/supervised"),
        decision("decoded/lpm"),
    ]
    assert list(in_words(found)) == [
        "finished, reused: data, tokenizer",
        "to reuse: prior, from prior.2, which has these settings",
        "to rerun: supervised, because model.size changed; it took 3m10s before",
        "to resume: lengths, from lengths.1, which has these settings",
        "to resume: lpm",
        "to run: decoded/supervised, decoded/lpm",
    ]


def test_a_change_is_followed_through_the_stages_that_depend_on_it(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "model").write_text("work")

    def wanted(size: int) -> list[Wanted]:
        model = tmp_path / "supervised/model"
        return [
            Wanted("prior", {"size": 1}, {}, make),
            Wanted("supervised", {"size": size}, {}, make),
            Wanted("lengths", {}, {"model": model}, make),
            Wanted("fusion", {}, {"model": model}, make),
            Wanted("lpm", {}, {"prior": tmp_path / "prior/model"}, make, after="fusion"),
        ]

    def places(size: int) -> dict[str, str]:
        found = decisions(tmp_path, wanted(size))
        return {each.folder.name: each.place.name if each.place else each.reason for each in found}

    assert set(places(1).values()) == {""}
    for size in (1, 2):
        for each in wanted(size)[: None if size == 1 else 2]:
            with Stage(tmp_path / each.name, each.settings, each.inputs, keep_old=True).work() as todo:
                if todo:
                    each.make(tmp_path / each.name)
    assert places(2) == {
        "prior": "prior",
        "supervised": "supervised",
        "lengths": "inputs.model changed",
        "fusion": "inputs.model changed",
        "lpm": "fusion may change its settings",
    }
    assert places(1) == {
        "prior": "prior",
        "supervised": "supervised.1",
        "lengths": "lengths",
        "fusion": "fusion",
        "lpm": "lpm",
    }
