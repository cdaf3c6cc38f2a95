"""Hugging Face recognizers: parity with transformers in features, log q, greedy search and saved folders."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hub_stub import Hub
from narrowing import of_type, present
from tiny_hf import LANGUAGE, LETTERS, MAKERS, SECONDS
from torch import Tensor
from torch.nn import functional

from priormatch.cli.model_verbs import export
from priormatch.config import PretrainedSettings, TrainingSettings
from priormatch.data.batches import Batch
from priormatch.data.clips import Clip
from priormatch.decoding.beam import Hypotheses, beam_search, pad
from priormatch.errors import UserError
from priormatch.pipeline.cards import plain_card
from priormatch.pipeline.publish import publish
from priormatch.recognizers.card import CARD, read_card
from priormatch.recognizers.decode import plain_search
from priormatch.recognizers.hf_files import Origin
from priormatch.recognizers.hf_head import DecoderHead
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.hf_steps import can_pack, written
from priormatch.recognizers.hf_tokenizer import HuggingFaceTokenizer
from priormatch.recognizers.hf_tuning import body_of
from priormatch.recognizers.hub import upload
from priormatch.recognizers.load import load_recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.recognizers.transcribing import cutting_for, hear

Folder = Callable[[str], Path]
NAMES = list(MAKERS)
CTC = ["wav2vec2", "wav2vec2-group", "hubert", "wavlm"]
DECODERS = ["whisper", "moonshine", "speech_to_text", "composed"]
TEXTS = ["at nine", "no", "meeting with doctor"]


def load(folder: Path, **settings: Any) -> HuggingFaceRecognizer:
    language = LANGUAGE.get(folder.name, "")
    return HuggingFaceRecognizer.load(folder, settings=PretrainedSettings(language=language, **settings))


def waves(*counts: int) -> list[np.ndarray]:
    """Noise that gets louder, of these numbers of samples."""
    random = np.random.default_rng(0)
    return [
        (0.1 * random.standard_normal(each) * np.linspace(0, 1, each)).astype(np.float32) for each in counts
    ]


def batch_of(*counts: int) -> Batch:
    made = waves(*counts)
    waveforms = torch.zeros(len(made), max(counts))
    for row, each in zip(waveforms, made, strict=True):
        row[: len(each)] = torch.from_numpy(each)
    return Batch.of_audio(waveforms, torch.tensor(counts))


def hypotheses(model: HuggingFaceRecognizer, utterances: int) -> Hypotheses:
    return Hypotheses.of_texts([TEXTS] * utterances, model.tokenizer)


def original(folder: Path, inputs: np.ndarray) -> tuple[Any, dict[str, Tensor]]:
    """The network as transformers loads it, and the features of one utterance."""
    import transformers

    auto = transformers.AutoModelForCTC if folder.name in CTC else transformers.AutoModelForSpeechSeq2Seq
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    return auto.from_pretrained(folder).eval(), extractor(inputs, sampling_rate=16_000, return_tensors="pt")


@pytest.mark.parametrize("name", NAMES)
def test_features_are_those_of_the_models_own_extractor(hf_folder: Folder, name: str) -> None:
    import transformers

    counts = (20_000, 30_000, 9000, 40_000)
    model, batch = load(hf_folder(name)), batch_of(*counts)
    extractor = transformers.AutoFeatureExtractor.from_pretrained(hf_folder(name))
    found = model.inputs(batch.waveforms, batch.samples)
    for row, wave in enumerate(waves(*counts)):
        own = extractor(wave, sampling_rate=16_000, return_tensors="pt")[extractor.model_input_names[0]][0]
        values = found.values[row] if found.lengths is None else found.values[row, : int(found.lengths[row])]
        torch.testing.assert_close(values, own, atol=2e-5, rtol=1e-4)
        assert found.lengths is None or not found.values[row, len(own) :].any()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_log_q_is_the_loss_of_transformers(hf_folder: Folder, name: str) -> None:
    model, batch = load(hf_folder(name)), batch_of(24_000, 9000)
    given = hypotheses(model, 2)
    log_q = model.log_prob(batch, given)
    network, inputs = original(hf_folder(name), waves(24_000)[0])
    for number in range(len(TEXTS)):
        labels = given.labels[0, number, : given.lengths[0, number]]
        if name in CTC:
            network.config.ctc_loss_reduction = "sum"
            loss = network(**inputs, labels=labels[None, :-1]).loss
        else:
            inputs.pop("attention_mask", None)
            prompt = model.prompt
            written = torch.cat([prompt, labels])[None]
            targets = torch.cat([torch.full((len(prompt) - 1,), -100), labels])[None]
            loss = len(labels) * network(**inputs, decoder_input_ids=written[:, :-1], labels=targets).loss
        torch.testing.assert_close(log_q[0, number], -loss, atol=1e-3, rtol=1e-5)


@torch.no_grad()
def test_the_likelihood_of_ctc_is_that_of_torch(hf_folder: Folder) -> None:
    model, batch = load(hf_folder("wav2vec2")), batch_of(24_000, 9000)
    given, frames = hypotheses(model, 2), model.frames(batch)
    assert frames.lengths.tolist() == [74, 27]
    expected = functional.ctc_loss(
        frames.values.repeat_interleave(3, dim=0).log_softmax(dim=-1).transpose(0, 1),
        given.labels.flatten(0, 1),
        frames.lengths.repeat_interleave(3),
        given.lengths.flatten() - 1,
        reduction="none",
    )
    torch.testing.assert_close(model.log_prob(batch, given).flatten(), -expected, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "speech_to_text"])
@torch.no_grad()
def test_padding_and_other_utterances_change_nothing(hf_folder: Folder, name: str) -> None:
    """Also for a group norm over time, whose model transformers runs without any mask."""
    counts = (24_000, 9000, 16_000)
    model, batch = load(hf_folder(name)), batch_of(*counts)
    given, beam = hypotheses(model, 3), model.propose(batch, 3)
    together = model.log_prob(batch, given)
    for row, count in enumerate(counts):
        alone = Batch.of_audio(batch.waveforms[row : row + 1, :count], batch.samples[row : row + 1])
        own = Hypotheses(given.labels[row : row + 1], given.lengths[row : row + 1], model.tokenizer)
        torch.testing.assert_close(model.log_prob(alone, own)[0], together[row], atol=2e-3, rtol=1e-4)
        found = model.propose(alone, 3)
        assert found.lengths[0].tolist() == beam.lengths[row].tolist()
        longest = int(found.lengths.max())
        assert torch.equal(found.classes[0, :, :longest], beam.classes[row, :, :longest])
    if name != "moonshine":  # whose decoder needs a mask
        plain, inputs = original(hf_folder(name), waves(*counts)[1])
        if name in CTC:
            inputs.pop("attention_mask", None)
            torch.testing.assert_close(
                plain(**inputs).logits[0], model.frames(batch).values[1, :27], atol=2e-4, rtol=1e-3
            )


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_greedy_search_is_that_of_generate(hf_folder: Folder, name: str) -> None:
    counts = (24_000, 12_000, 16_000, 20_000)
    model = load(hf_folder(name))
    lengths = set()
    for wave in waves(*counts):
        network, inputs = original(hf_folder(name), wave)
        more = {"language": "en", "task": "transcribe"} if name == "whisper" else {}
        never = {} if name == "whisper" else {"suppress_tokens": model.never.nonzero()[:, 0].tolist()}
        expected = network.generate(**inputs, num_beams=1, do_sample=False, **more, **never)[0].tolist()
        alone = Batch.of_audio(torch.from_numpy(wave)[None], torch.tensor([len(wave)]))
        found = model.propose(alone, 1)
        classes = found.classes[0, 0].tolist()[: len(expected)]
        start = 0 if name == "whisper" else len(model.prompt)  # which leaves out prompt and end
        written = expected[start:]
        assert classes[: len(written)] == written
        lengths.add(len(written))
    assert len(lengths) > 1 or name in ("speech_to_text", "composed")


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_beam_has_distinct_hypotheses_with_exact_scores(hf_folder: Folder, name: str) -> None:
    model, batch = load(hf_folder(name)), batch_of(24_000, 9000, 16_000)
    beam = model.propose(batch, 4)
    log_q = model.log_prob(batch, Hypotheses(beam.classes, beam.lengths, model.tokenizer))
    torch.testing.assert_close(beam.scores[beam.ended], log_q[beam.ended], atol=1e-3, rtol=1e-5)
    assert not set(beam.classes.flatten().tolist()) & set(model.never.nonzero()[:, 0].tolist())
    for row in beam.classes.tolist():
        assert len(set(map(tuple, row))) == 4
    if name != "moonshine":  # a beam may lose the best path, as it does here
        greedy = model.propose(batch, 1)
        one = model.log_prob(batch, Hypotheses(greedy.classes, greedy.lengths, model.tokenizer))
        both = beam.ended & greedy.ended
        assert torch.all(beam.scores[both, 0] >= one[both, 0] - 1e-3)


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_a_beam_is_that_of_a_search_without_a_cache(hf_folder: Folder, name: str) -> None:
    model, batch = load(hf_folder(name)), batch_of(24_000, 12_000, 16_000)
    head, frames = of_type(DecoderHead, model.head), model.frames(batch)

    def step(history: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        if classes is not None:
            history = torch.cat([history, classes[:, :, None]], dim=2)
        ahead = functional.pad(history, (0, 1))
        log_q = head._logits(frames, ahead)[:, :, -1].log_softmax(dim=-1)
        never = head.never if classes is not None else head.never | head.never_first
        return log_q.masked_fill(never, -torch.inf), history

    for k in (1, 4):
        expected = beam_search(step, torch.zeros(3, k, 0, dtype=torch.long), head.eos, head.longest)
        found = head.search(frames, k)
        assert torch.equal(found.classes, expected.classes)
        assert torch.equal(found.ended, expected.ended)
        torch.testing.assert_close(found.scores, expected.scores, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("name", ["whisper", "moonshine"])
def test_hypotheses_in_one_row_are_the_same_as_a_row_each(hf_folder: Folder, name: str) -> None:
    batch, found = batch_of(24_000, 9000, 16_000), []
    for packs in (True, False):
        model = load(hf_folder(name))
        assert model.packs
        model.packs = packs
        given = hypotheses(model, 3)
        losses = model.losses(batch, given, TrainingSettings(label_smoothing=0.1))
        (losses * torch.arange(1, 10).view(3, 3)).sum().backward()
        gradients = {key: each.grad for key, each in model.named_parameters() if each.requires_grad}
        found.append((losses.detach(), gradients, model.propose(batch, 4)))
    (losses, gradients, beam), (expected, own, rows) = found
    torch.testing.assert_close(losses, expected, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(gradients, own, atol=2e-3, rtol=1e-3)
    assert torch.equal(beam.classes, rows.classes)
    torch.testing.assert_close(beam.scores, rows.scores, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("name", ["speech_to_text", "composed"])
def test_networks_without_positions_get_a_row_for_each_hypothesis(hf_folder: Folder, name: str) -> None:
    assert not load(hf_folder(name)).packs


@pytest.mark.parametrize("name", ["whisper", "moonshine"])
def test_networks_that_take_no_such_mask_are_found_out(hf_folder: Folder, name: str) -> None:
    model = load(hf_folder(name))
    plain = model.network.forward

    def forgetful(decoder_attention_mask: Any = None, decoder_position_ids: Any = None, **given: Any) -> Any:
        return plain(decoder_position_ids=decoder_position_ids, **given)

    frames = model.frames(batch_of(16_000))
    assert can_pack(model.network, model.prompt, frames, model.tokenizer.classes)
    model.network.forward = forgetful
    assert not can_pack(model.network, model.prompt, frames, model.tokenizer.classes)


def test_a_search_gets_more_memory_when_it_needs_some() -> None:
    kept, new = torch.arange(6.0).view(1, 1, 3, 2), torch.full((1, 1, 2, 2), 9.0)
    assert torch.equal(written(kept.clone(), new, 1), torch.cat([kept[:, :, :1], new], dim=2))
    more = written(kept, new, 3)
    assert torch.equal(more[:, :, :5], torch.cat([kept, new], dim=2))
    assert more.shape[2] == 6
    assert written(more, new, 4) is more


def test_search_in_parts_is_the_same(hf_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = load(hf_folder("whisper")), batch_of(24_000, 9000, 16_000)
    whole = model.propose(batch, 4)
    monkeypatch.setattr("priormatch.recognizers.hf_recognizer.ROWS", 2)
    monkeypatch.setattr("priormatch.recognizers.hf_head.ROWS", 4)
    parts = model.propose(batch, 4)
    assert torch.equal(whole.classes, parts.classes)
    torch.testing.assert_close(whole.scores, parts.scores)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_saved_model_is_the_same_in_transformers(hf_folder: Folder, name: str, tmp_path: Path) -> None:
    import transformers

    model = load(hf_folder(name))
    for each in model.parameters():
        each.mul_(1.01)
    model.longest_heard = 1.5
    out = tmp_path / name
    model.save(out)
    model.save(out)  # over the first
    network, inputs = original(out, waves(24_000)[0])
    given, mine = {**inputs}, model.network
    if name not in CTC:
        given["decoder_input_ids"] = torch.tensor([[5, 6, 7]])
    assert torch.equal(network(**given).logits, mine(**given).logits)
    again = load_recognizer(out)
    assert (again.longest_heard, again.tokenizer) == (1.5, model.tokenizer)
    batch = batch_of(24_000, 9000)
    assert torch.equal(again.frames(batch).values, model.frames(batch).values)
    pipe = transformers.pipeline("automatic-speech-recognition", model=str(out))
    sound = {"raw": waves(24_000)[0], "sampling_rate": 16_000}
    options = {"generate_kwargs": {"num_beams": 1}} if name not in CTC else {}
    heard: Any = pipe(sound, **options)
    if name == "whisper":
        written = model.tokenizer.decode(model.propose(batch_of(24_000), 1).classes[0, 0].tolist())
        assert " ".join(heard["text"].split()) == written


def test_folders_that_changed_are_refused(hf_folder: Folder, tmp_path: Path) -> None:
    load(hf_folder("wav2vec2")).save(tmp_path / "model")
    config = tmp_path / "model" / "preprocessor_config.json"
    config.write_text(config.read_text() + " ")
    with pytest.raises(UserError, match=r"preprocessor_config.json is not the one that was written"):
        load_recognizer(tmp_path / "model")


def test_a_model_with_nan_is_not_written(hf_folder: Folder, tmp_path: Path) -> None:
    model = load(hf_folder("wav2vec2"))
    model.save(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with torch.no_grad():
        model.network.lm_head.bias[0] = torch.nan
    with pytest.raises(UserError, match="contains NaN"):
        model.save(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["whisper", "wav2vec2"])
@pytest.mark.parametrize("train", ["full", "decoder", "lora"])
def test_training_changes_what_it_should(hf_folder: Folder, name: str, train: str, tmp_path: Path) -> None:
    model = load(hf_folder(name), train=train, lora_rank=2, gradient_checkpointing=True).train()
    batch, given = batch_of(24_000, 9000), hypotheses(model, 2)
    copied = model.copy().eval().requires_grad_(False)
    before = {key: each.clone() for key, each in model.network.state_dict().items()}
    trained = [each for each in model.parameters() if each.requires_grad]
    assert sum(each.numel() for each in trained) == sum(
        each.numel() for key, each in model.state_dict().items() if key in dict(model.named_parameters())
    )
    optimizer = torch.optim.AdamW(trained, 0.01)
    losses = []
    for _ in range(3):
        torch.manual_seed(1)  # wav2vec 2.0 drops other layers and masks other frames every time
        optimizer.zero_grad()
        loss = model.losses(batch, given, TrainingSettings()).sum()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(each.grad is not None for each in trained) or name == "wav2vec2"  # whose layers may be dropped
    assert losses[-1] < losses[0]
    model.eval()
    changed = {key for key, each in model.network.state_dict().items() if not torch.equal(each, before[key])}
    encoder = "model.encoder" if name == "whisper" else "wav2vec2"
    if train == "decoder":
        assert changed and not any(key.startswith(encoder) for key in changed)
    elif train == "lora":
        assert changed and all(".lora_" in key or key.startswith("lm_head") for key in changed)
    else:
        assert any(key.startswith(encoder) for key in changed)
        assert not any("feature_extractor" in key or "encoder.embed_positions" in key for key in changed)

    with torch.no_grad():
        log_q, old = model.log_prob(batch, given), copied.log_prob(batch, given)
        assert not torch.allclose(log_q, old, atol=0.1)  # the copy did not change
        model.save(tmp_path / name)
        merged = load_recognizer(tmp_path / name)
        torch.testing.assert_close(merged.log_prob(batch, given), log_q, atol=2e-3, rtol=1e-4)
        copied.load_state_dict(model.state_dict())
        assert torch.equal(copied.log_prob(batch, given), log_q)


def test_copies_share_what_is_never_trained(hf_folder: Folder) -> None:
    model = load(hf_folder("whisper"), train="lora")
    pairs = zip(model.named_parameters(), model.copy().parameters(), strict=True)
    for (name, one), other in pairs:
        assert (one.data_ptr() == other.data_ptr()) == (".lora_" not in name)
        assert one is not other


def test_weights_of_another_kind_are_refused(hf_folder: Folder) -> None:
    with pytest.raises(RuntimeError, match=r"another pretrained\.train"):
        load(hf_folder("whisper")).load_state_dict(load(hf_folder("whisper"), train="lora").state_dict())


@pytest.mark.parametrize("name", ["whisper", "wav2vec2"])
def test_tokens_of_very_long_texts_have_no_loss(hf_folder: Folder, name: str) -> None:
    model = load(hf_folder(name)).train()
    labels, lengths = pad([[*range(5, 25)] * 10 + [model.tokenizer.eos], [5, 6, model.tokenizer.eos]])
    given = Hypotheses(labels[None], lengths[None], model.tokenizer)
    losses = model.losses(batch_of(9000), given, TrainingSettings())
    assert losses[0, 0] == 0
    assert losses[0, 1] > 0
    losses.sum().backward()
    assert all(bool(each.grad.isfinite().all()) for each in model.parameters() if each.grad is not None)
    assert model.eval().log_prob(batch_of(9000), given)[0, 0] == -torch.inf


@pytest.mark.parametrize("name", ["wav2vec2", "composed"])
def test_masks_repeat_with_the_seed_of_torch(hf_folder: Folder, name: str) -> None:
    model = load(hf_folder(name)).train()
    config: Any = body_of(model.network).config
    state: Any = np.random.get_state()
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(model.frames(batch_of(24_000)).values.detach())
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])
    after: Any = np.random.get_state()
    assert after[1].tolist() == state[1].tolist()
    share = config.mask_time_prob
    assert model.frames(batch_of(1600)).values.isfinite().all()  # too short for a mask
    assert config.mask_time_prob == share > 0


def test_very_short_audio(hf_folder: Folder) -> None:
    for name in NAMES:
        beam = load(hf_folder(name)).propose(batch_of(100, 1), 2)
        assert beam.scores[:, 0].isfinite().all()


def test_word_times_of_ctc(hf_folder: Folder) -> None:
    model = load(hf_folder("wav2vec2"))
    assert model.frame_seconds == pytest.approx(0.02)
    with torch.no_grad():
        model.network.lm_head.bias[4] += 4.0  # the word delimiter
    clip = Clip(3.0, waves(24_000)[0])
    (segment,) = hear(model, [clip], plain_search(4))
    assert [each.text for each in segment.words] == segment.text.split()
    assert len(segment.words) > 1
    times = [time for each in segment.words for time in (each.start, each.end)]
    assert times == sorted(times)
    assert 3.0 <= times[0] < times[-1] <= 4.5


def test_recordings_are_cut_to_what_the_model_takes(hf_folder: Folder) -> None:
    model = load(hf_folder("whisper"))
    assert model.longest_audio == SECONDS
    assert cutting_for(model).longest == cutting_for(model, longest=20).longest == SECONDS
    long = np.concatenate([waves(20_000)[0], np.zeros(8000, np.float32), waves(20_000)[0]])
    assert all(each.end - each.start <= SECONDS for each in model.transcribe(long).segments)


class TestTokenizer:
    @pytest.fixture
    def letters(self, hf_folder: Folder) -> HuggingFaceTokenizer:
        return load(hf_folder("wav2vec2")).tokenizer

    def test_letters_of_one_case(self, letters: HuggingFaceTokenizer) -> None:
        assert (letters.eos, letters.classes, letters.unit) == (0, 5 + len(LETTERS), "character")
        classes = letters.encode("Hello  it's")
        assert classes == letters.encode("HELLO IT'S")
        assert [letters.pieces[each] for each in classes] == [*"hello▁it's"]
        assert letters.decode([*classes, 0, 5]) == "hello it's"
        assert letters.decode(letters.encode("é9 aéa")) == "aa"
        assert letters.unwritable("naïve 9 'X") == ["9", "ï"]

    def test_whisper_writes_spaces_first(self, hf_folder: Folder) -> None:
        tokenizer = load(hf_folder("whisper")).tokenizer
        for text in ("at nine", "Crème brûlée, 9.", ""):
            classes = tokenizer.encode(text)
            assert tokenizer.decode([*classes, tokenizer.eos, *classes]) == text
        assert tokenizer.pieces[tokenizer.encode("at")[0]].startswith("▁")
        assert tokenizer.encode("<|endoftext|>a<|en|>") == tokenizer.encode("a")
        assert tokenizer.unwritable("aé") == []

    @pytest.mark.parametrize("name", ["wav2vec2", "whisper", "moonshine"])
    def test_it_can_be_sent_to_a_reader_process(self, hf_folder: Folder, name: str) -> None:
        tokenizer = load(hf_folder(name)).tokenizer
        sent = pickle.loads(pickle.dumps(tokenizer))
        assert sent == tokenizer
        assert hash(sent) == hash(tokenizer)
        assert sent.encode("at nine") == tokenizer.encode("at nine")


@pytest.fixture
def changed(hf_folder: Folder, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a folder with other entries in a file."""

    def change(name: str, file: str, **entries: Any) -> Path:
        folder = Path(shutil.copytree(hf_folder(name), tmp_path / name))
        known = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(known | entries))
        return folder

    return change


@pytest.mark.parametrize(
    ("name", "file", "entries", "message"),
    [
        ("wav2vec2", "preprocessor_config.json", {"sampling_rate": 8000}, "takes audio at 8000 Hz"),
        ("whisper", "preprocessor_config.json", {"n_fft": 1 << 40}, "n_fft=.* is too large"),
        ("whisper", "preprocessor_config.json", {"chunk_length": 600}, "its features have the sizes"),
        ("wav2vec2", "preprocessor_config.json", {"padding_value": "nothing"}, "do not fit together"),
        (
            "wav2vec2",
            "preprocessor_config.json",
            {"feature_extractor_type": "Speech2TextFeatureExtractor"},
            "do not fit together",
        ),
        ("moonshine", "tokenizer.json", {"model": {"type": "Unigram", "vocab": 5}}, "tokenizer in .* cannot"),
        ("wav2vec2", "config.json", {"pad_token_id": None}, "not among the 32 of the network"),
        ("wav2vec2", "config.json", {"conv_kernel": [10, 3, 3, 3, 3, 2, 200]}, "weights of another shape"),
        ("moonshine", "generation_config.json", {"decoder_start_token_id": "x"}, "."),
        ("wav2vec2", "config.json", {"pad_token_id": 99}, "not among the 32 of the network"),
        ("whisper", "generation_config.json", {"task_to_id": {}}, "has no task transcribe"),
        ("whisper", "generation_config.json", {"lang_to_id": {"<|en|>": 9999}}, "not among the"),
    ],
)
def test_folders_that_do_not_fit_are_refused(
    changed: Callable[..., Path], name: str, file: str, entries: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load(changed(name, file, **entries))


def test_languages(hf_folder: Folder) -> None:
    def prompt(name: str, language: str, **more: Any) -> list[int]:
        settings = PretrainedSettings(language=language, **more)
        return HuggingFaceRecognizer.load(hf_folder(name), settings=settings).prompt.tolist()

    assert prompt("whisper", "German") == prompt("whisper", "de") == prompt("whisper", "<|de|>")
    assert prompt("whisper", "de") != prompt("whisper", "en") != prompt("whisper", "en", task="translate")
    with pytest.raises(UserError, match=r"knows 2 languages: set pretrained\.language"):
        prompt("whisper", "")
    with pytest.raises(UserError, match="does not know the language fr: provide one of de, en"):
        prompt("whisper", "fr")
    for name in ("wav2vec2", "moonshine"):
        with pytest.raises(UserError, match=r"omit pretrained\.language=en"):
            prompt(name, "en")


def test_a_missing_mask_embedding_is_zero(hf_folder: Folder, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(hf_folder("wav2vec2"), tmp_path / "wav2vec2"))
    weights = load_file(folder / "model.safetensors")
    del weights["wav2vec2.masked_spec_embed"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert not load(folder).network.wav2vec2.masked_spec_embed.any()
    del weights["lm_head.bias"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"lacks weights \(lm_head.bias\)"):
        load(folder)


def test_our_own_models_are_loaded_too(tiny_recognizer: SpeechRecognizer, tmp_path: Path) -> None:
    tiny_recognizer.save(tmp_path / "own")
    own = load_recognizer(tmp_path / "own")
    assert type(own) is SpeechRecognizer
    with pytest.raises(UserError):
        load_recognizer(tmp_path / "nothing")


def test_a_model_comes_back_from_the_hub(hub: Hub, hf_folder: Folder, tmp_path: Path) -> None:
    model = load(hf_folder("whisper"))
    model.save(tmp_path / "model")
    (tmp_path / "model" / "notes.txt").write_text("mine alone")
    publish(tmp_path / "model", "ann/whispers")
    held = hub.repositories["ann/whispers"]
    commit = held.branches["main"]
    assert {"config.json", "generation_config.json", "model.yaml", CARD} < held.commits[commit].keys()
    assert "notes.txt" not in held.commits[commit]
    back = of_type(HuggingFaceRecognizer, load_recognizer("ann/whispers"))
    assert_close = torch.testing.assert_close
    assert_close(dict(back.named_parameters()), dict(model.named_parameters()), atol=0, rtol=0)

    folder = back.origin.source
    assert folder == str(hf_folder("whisper"))  # where the network was first
    card = present(read_card(tmp_path / "model"))
    assert card.facts["library_name"] == "transformers"
    assert 'pipeline("automatic-speech-recognition", "ann/whispers")' in card.sections["Use"]


def test_the_commit_of_a_download_is_kept(hub: Hub, hf_folder: Folder, tmp_path: Path) -> None:
    folder = hf_folder("wav2vec2")
    upload(folder, [file.name for file in folder.iterdir()], "ann/letters", texts={})
    model = of_type(HuggingFaceRecognizer, load_recognizer("ann/letters"))
    commit = hub.repositories["ann/letters"].branches["main"]
    assert model.origin == Origin("ann/letters", commit)
    model.save(tmp_path)
    again = of_type(HuggingFaceRecognizer, load_recognizer(tmp_path))
    assert again.origin == model.origin
    card = plain_card("letters", again)
    assert card.facts["base_model"] == "ann/letters"
    assert f"Wav2Vec2ForCTC of transformers, from `ann/letters`, commit {commit}" in card.summary


def test_models_of_transformers_are_not_exported(hf_folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="optimum-cli export onnx"):
        export(hf_folder("wav2vec2"), out=tmp_path / "out")
