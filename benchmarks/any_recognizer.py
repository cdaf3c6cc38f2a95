"""Matching models of transformers: python benchmarks/any_recognizer.py [--part speed|memory] [--device DEVICE] [--json]

Speed: an update of `priormatch match` for a Whisper of 73 M parameters with k = 4, beside a fine-tuning step of the
same model in plain transformers, and beside what one would otherwise put together for matching: `generate` with four
beams, a language model that scores the hypotheses one after the other, and the same training step. That `generate` is
`GenerationMixin.generate`; Whisper's own repeats the audio for each of `num_return_sequences`, and returns the best
hypothesis so many times. Fine-tuning gets its features ready-made; the updates of matching compute theirs.

Networks have random weights and are made on the spot, with tokenizers of whole words, so that a text has as many tokens
for the prior as for the recognizer. The output of the end of sentence is 0, below that of thousands of other tokens,
and texts are cut off at the length of the labels: every search, ours and theirs, makes the same number of steps. Random
weights give the same few texts for all utterances, so random texts replace them after the search; those of a beam part
at random places.

Memory: the most that a GPU holds in updates of a Whisper of 242 M and of a wav2vec 2.0 of 315 M parameters, by which
weights are trained. It includes the proposal, the prior (a GPT-2 of 124 M parameters) and the state of AdamW. The
searches of the CTC model end by themselves, at whatever length random weights give.
"""

import argparse
import copy
import gc
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rich.table
import torch
from measure import Table, describe, fresh_medians, versions
from rich.console import Console
from step import NOTHING, Ready, list_parts
from torch import Tensor, nn

from priormatch.config import (
    ConvLMSettings,
    MatchingSettings,
    OptimizerSettings,
    PretrainedSettings,
    TrainingSettings,
)
from priormatch.data import SAMPLE_RATE
from priormatch.data.batches import Batch
from priormatch.decoding.beam import Beam, Hypotheses
from priormatch.device import find_device, mixed_precision
from priormatch.matching.diagnostics import Figures
from priormatch.matching.lpm import BeamTargets, Proposal, Targets, TargetsOf, Weighing, weigh
from priormatch.progress import say, track
from priormatch.recognizers.hf_files import Origin, Parts
from priormatch.recognizers.hf_folder import quietly
from priormatch.recognizers.hf_prior import HuggingFacePrior
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.hf_tokenizer import HuggingFaceTokenizer
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior, Proposes
from priormatch.stopwatch import Stopwatch
from priormatch.training.loop import make_update
from priormatch.training.matching_step import Matching
from priormatch.training.optimizer import make_optimizer

BEAM_SIZE = 4
CLIP = 1.0
ELSEWHERE = "elsewhere"  # the time between the updates
IGNORED = -100  # the label that the loss of transformers leaves out
PROMPT = ("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")
END = "<|endoftext|>"
ONSETS, VOWELS, SYLLABLES = "bdfghjklmnprstvwz", "aeiou", 4
LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ'")
BASE = {"d_model": 512, "layers": 6, "heads": 8, "ffn": 2048}
SMALL_WHISPER = {"d_model": 768, "layers": 12, "heads": 12, "ffn": 3072}
TINY = {"d_model": 32, "layers": 2, "heads": 2, "ffn": 64}
LARGE_WAVES: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
TINY_WAVES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
GPT2_SMALL: dict[str, Any] = {}  # the defaults of GPT2Config
TINY_GPT2 = {"n_layer": 2, "n_head": 2, "n_embd": 32}
OWN_PRIOR = ConvLMSettings(embedding=256, width=256, bottlenecks=[[128, 256, 6]], head=256)
TINY_PRIOR = ConvLMSettings(embedding=16, width=16, bottlenecks=[[8, 16, 1]], head=16)
TRAINED = ("full", "decoder", "lora")
UPDATES = 2  # whose memory is measured; the first makes the state of the optimizer


@dataclass(frozen=True)
class Sizes:
    """A batch, and the sizes of the tokenizers: utterances of so many seconds and tokens."""

    utterances: int
    seconds: float
    tokens: int
    classes: int
    window: int  # seconds that Whisper takes


FULL = Sizes(16, 12.5, 45, 51_865, 30)
TOY = Sizes(2, 1.0, 6, 300, 2)


def words(count: int) -> list[str]:
    """Different words of syllables, the shortest first."""
    found: list[str] = []
    before = [""]
    while len(found) < count:
        before = [first + onset + vowel for first in before for onset in ONSETS for vowel in VOWELS]
        found += before[: count - len(found)]
    return found


def word_tokenizer(size: int, special: tuple[str, ...]) -> Any:
    """A tokenizer of whole words; the special tokens, of which the first is the end of text, come last."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = [*words(size - len(special)), *special]
    own = Tokenizer(
        models.WordLevel({each: number for number, each in enumerate(known)}, unk_token=special[0])
    )
    own.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=own, eos_token=special[0], additional_special_tokens=[*special[1:]]
    )


def whisper(sizes: Sizes, shape: dict[str, int]) -> Parts:
    """A Whisper with random weights that never ends a text by itself."""
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    own = word_tokenizer(sizes.classes, (END, *PROMPT))
    end, *prompt = own.convert_tokens_to_ids([END, *PROMPT])
    config = WhisperConfig(
        vocab_size=sizes.classes,
        d_model=shape["d_model"],
        encoder_layers=shape["layers"],
        decoder_layers=shape["layers"],
        encoder_attention_heads=shape["heads"],
        decoder_attention_heads=shape["heads"],
        encoder_ffn_dim=shape["ffn"],
        decoder_ffn_dim=shape["ffn"],
        max_source_positions=50 * sizes.window,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=prompt[0],
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    torch.manual_seed(0)
    network: Any = WhisperForConditionalGeneration(config)
    with torch.no_grad():
        network.get_input_embeddings().weight[end] = 0.0  # the output layer has the same weights
    generation = network.generation_config
    generation._from_model_config = False
    generation.max_length = len(prompt) + sizes.tokens - 1  # and the end
    tokenizer = HuggingFaceTokenizer(own, sizes.classes, end)
    return Parts(
        network, WhisperFeatureExtractor(chunk_length=sizes.window), tokenizer, prompt, Origin("whisper")
    )


def wav2vec2(sizes: Sizes, shape: dict[str, Any]) -> Parts:
    """A wav2vec 2.0 with CTC over letters and random weights."""
    from transformers import (
        Wav2Vec2Config,
        Wav2Vec2CTCTokenizer,
        Wav2Vec2FeatureExtractor,
        Wav2Vec2ForCTC,
    )

    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.json"
        vocabulary.write_text(json.dumps({each: number for number, each in enumerate(LETTERS)}))
        own = Wav2Vec2CTCTokenizer(str(vocabulary))
    config = Wav2Vec2Config(
        vocab_size=len(LETTERS),
        pad_token_id=0,
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
        conv_bias=True,
        **shape,
    )
    torch.manual_seed(0)
    tokenizer = HuggingFaceTokenizer(own, len(LETTERS), 0)
    extractor = Wav2Vec2FeatureExtractor(return_attention_mask=True)
    return Parts(Wav2Vec2ForCTC(config), extractor, tokenizer, [], Origin("wav2vec2"))


def gpt2(sizes: Sizes, shape: dict[str, Any], device: torch.device) -> HuggingFacePrior:
    """A GPT-2 with random weights, in the precision that loading one would choose."""
    from transformers import GPT2Config, GPT2LMHeadModel

    own = word_tokenizer(min(sizes.classes, 50_257), (END,))
    torch.manual_seed(1)
    config = GPT2Config(**shape, vocab_size=len(own), bos_token_id=len(own) - 1, eos_token_id=len(own) - 1)
    prior = HuggingFacePrior(GPT2LMHeadModel(config), own, "gpt2").to(device)
    prior.probe()
    return prior


def recognizer(
    parts: Parts, device: torch.device, settings: PretrainedSettings | None = None
) -> HuggingFaceRecognizer:
    """A recognizer of a copy of the network."""
    own = replace(parts, network=copy.deepcopy(parts.network))
    return HuggingFaceRecognizer(own, settings or PretrainedSettings()).to(device)


def batch_of(sizes: Sizes, tokenizer: HuggingFaceTokenizer, device: torch.device) -> Batch:
    """Random audio, and labels of random tokens."""
    count, samples = sizes.utterances, int(sizes.seconds * SAMPLE_RATE)
    labels = torch.tensor(np.random.choice(tokenizer.of_text, (count, sizes.tokens)), device=device)
    labels[:, -1] = tokenizer.eos
    return Batch(
        ids=[str(number) for number in range(count)],
        texts=[None] * count,
        waveforms=0.1 * torch.randn(count, samples, device=device),
        samples=torch.full((count,), samples, device=device),
        labels=labels,
        label_lengths=torch.full((count,), sizes.tokens, device=device),
        noise=torch.rand(count, 0, device=device),
        whole=count,
    )


class Given(NamedTuple):
    """A batch, and the features that plain transformers takes."""

    batch: Batch
    features: Tensor


@dataclass
class Update:
    """An update of matching, as the training loop makes it, with targets of ours or of others."""

    model: HuggingFaceRecognizer
    targets: TargetsOf
    proposal: Proposal | None = None

    def __post_init__(self) -> None:
        self.stream = Ready()
        self.task = Matching(
            self.model,
            None,
            NOTHING,
            {},
            targets=self.targets,
            proposal=self.proposal,
            training=TrainingSettings(label_smoothing=0.0),
            matching=MatchingSettings(),
        )
        self.task.streams["unpaired"] = self.stream  # type: ignore[assignment]
        self.optimizer = optimizer_of(self.model)
        self.watch = Stopwatch(self.model.device)

    def __call__(self, batch: Batch) -> None:
        """Make one."""
        self.stream.batch = batch
        self.watch.lap(ELSEWHERE)
        make_update(self.task, self.optimizer, CLIP, 0, self.watch)

    def shares(self) -> dict[str, float]:
        """The share of each part of the updates since the last call."""
        found = self.watch.shares()
        return {name: share / (1 - found[ELSEWHERE]) for name, share in found.items() if name != ELSEWHERE}


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW for the weights that are trained."""
    trained = [each for each in model.parameters() if each.requires_grad]
    return make_optimizer(trained, OptimizerSettings("adamw", 1e-5))


def our_update(model: HuggingFaceRecognizer, prior: Prior) -> Update:
    """An update toward our own targets."""
    proposal = Proposal(model, 0.0)
    targets = BeamTargets(proposal, prior, BEAM_SIZE, Weighing())
    targets.proposer = Drawn(targets.proposer, model.tokenizer)
    return Update(model, targets, proposal)


def drawn_labels(shape: tuple[int, ...], tokenizer: HuggingFaceTokenizer, device: torch.device) -> Tensor:
    """Random words and the end, (B, k, U); those of a beam begin like its first ones, up to random places."""
    labels = torch.randint(
        tokenizer.known - len(tokenizer.special), shape, device=device
    )  # specials come last
    place = torch.randint(shape[2], (*shape[:2], 1), device=device)
    labels = torch.where(torch.arange(shape[2], device=device) < place, labels[:, :1], labels)
    labels[:, :, -1] = tokenizer.eos
    return labels


class Drawn:
    """A proposal that searches, and then answers with random texts, because random weights give few."""

    def __init__(self, proposer: Proposes, tokenizer: HuggingFaceTokenizer) -> None:
        self.proposer, self.tokenizer = proposer, tokenizer

    def propose(self, batch: Batch, k: int) -> Beam:
        """The beam with other labels."""
        beam = self.proposer.propose(batch, k)
        if self.tokenizer.eos == 0:  # CTC, whose beams end by themselves
            return beam
        return replace(beam, classes=drawn_labels(beam.classes.shape, self.tokenizer, beam.classes.device))


class Assembled:
    """Targets put together from transformers: `generate` with beams, and a language model that reads text by text."""

    def __init__(self, model: HuggingFaceRecognizer, prior: HuggingFacePrior, tokens: int) -> None:
        self.model = model.copy().eval().requires_grad_(False)
        self.prior, self.tokens = prior, tokens

    @torch.no_grad()
    def __call__(self, batch: Batch, watch: Stopwatch) -> tuple[Targets, Figures]:
        """Targets of a batch."""
        from transformers import GenerationMixin

        network, tokenizer, count = self.model.network, self.model.tokenizer, len(batch)
        prompt = self.model.prompt
        with mixed_precision(batch.waveforms.device):
            features = self.model.inputs(batch.waveforms, batch.samples).values
            found = GenerationMixin.generate(
                network,
                features,
                decoder_input_ids=prompt.expand(count, -1),
                num_beams=BEAM_SIZE,
                num_return_sequences=BEAM_SIZE,
            )
        written = found[:, len(prompt) :]
        labels = torch.cat([written, written.new_full((len(written), 1), tokenizer.eos)], dim=1)
        lengths = ((written != tokenizer.eos).sum(dim=1) + 1).view(count, -1)
        labels = drawn_labels((count, BEAM_SIZE, labels.shape[1]), tokenizer, labels.device)
        watch.lap("proposal")
        texts = Hypotheses(labels, lengths, tokenizer).texts
        scores = torch.tensor([[self.score(text) for text in beam] for beam in texts], device=labels.device)
        weights = weigh(scores, lengths > 0)
        watch.lap("prior")
        return Targets(labels, lengths, weights), {}

    def score(self, text: str) -> float:
        """log p_y of one text."""
        begin, end = self.prior.begin, self.prior.end
        tokens = torch.tensor([[begin, *self.prior.reads(text).input_ids, end]], device=self.prior.device)
        loss = self.prior.network(input_ids=tokens, labels=tokens, use_cache=False).loss
        return -float(loss) * (tokens.shape[1] - 1)


def fine_tuning(model: HuggingFaceRecognizer) -> Callable[[Given], None]:
    """A step of plain transformers on labeled speech: its own loss, clipping and a fused AdamW."""
    network, optimizer = model.network.train(), optimizer_of(model)
    trained = [each for each in network.parameters() if each.requires_grad]

    def step(given: Given) -> None:
        optimizer.zero_grad(set_to_none=True)
        with mixed_precision(given.features.device):
            loss = network(input_features=given.features, labels=given.batch.labels).loss
        loss.backward()
        nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()

    return step


def measure_speed(
    sizes: Sizes, small: bool, device: torch.device, repetitions: int
) -> tuple[dict[str, float], dict[str, dict[str, float]], dict[str, Update]]:
    """Median milliseconds, and the shares of the parts of each update of matching."""
    say("making the models")
    parts = whisper(sizes, TINY if small else BASE)
    prior = gpt2(sizes, TINY_GPT2 if small else GPT2_SMALL, device)
    models = [recognizer(parts, device) for _ in range(4)]
    own = ConvPrior(TINY_PRIOR if small else OWN_PRIOR, models[1].tokenizer).to(device)
    updates = {
        "matching, GPT-2": our_update(models[0], prior),
        "matching, ConvLM": our_update(models[1], own),
        "put together": Update(models[2], Assembled(models[2], prior, sizes.tokens)),
    }
    works: dict[str, Callable[[Given], None]] = {
        name: lambda given, update=update: update(given.batch) for name, update in updates.items()
    }
    works["fine-tuning"] = fine_tuning(models[3])

    def fresh() -> Given:
        batch = batch_of(sizes, parts.tokenizer, device)
        return Given(batch, models[3].inputs(batch.waveforms, batch.samples).values)

    say("measuring; the first updates take longer")
    found = fresh_medians(works, fresh, device, repetitions, warm_up=2)
    for update in updates.values():
        update.shares()  # those of the first updates, which are slower, are forgotten
        update(fresh().batch)
        update(fresh().batch)
    return found, {name: each.shares() for name, each in updates.items()}, updates


def measure_memory(sizes: Sizes, small: bool, device: torch.device) -> list[dict[str, Any]]:
    """The most memory that updates take, by model and by what is trained; none where peft is missing."""
    prior = gpt2(sizes, TINY_GPT2 if small else GPT2_SMALL, device)
    makers: dict[str, Callable[[], Parts]] = {
        "wav2vec 2.0, 315 M": lambda: wav2vec2(sizes, TINY_WAVES if small else LARGE_WAVES),
        "Whisper, 242 M": lambda: whisper(
            sizes, TINY if small else SMALL_WHISPER
        ),  # last: graphs keep memory
    }
    found: list[dict[str, Any]] = []
    cases = [(train, checkpointing) for train in TRAINED for checkpointing in (False, True)]
    for name, make in makers.items():
        parts = make()
        for train, checkpointing in track(cases, name):
            settings = PretrainedSettings(train=train, gradient_checkpointing=checkpointing)
            lacking = train == "lora" and find_spec("peft") is None
            peak = None if lacking else peak_of(parts, prior, settings, (sizes, device))
            row = {"model": name, "train": train, "gradient_checkpointing": checkpointing}
            found.append({**row, "missing": "peft" if lacking else None, **(peak or {})})
    return found


def peak_of(
    parts: Parts, prior: Prior, settings: PretrainedSettings, given: tuple[Sizes, torch.device]
) -> dict[str, float]:
    """The gigabytes that tensors take at most in two updates, and what PyTorch reserves for them; none on a CPU."""
    sizes, device = given
    gpu = device.type == "cuda"
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    update = our_update(recognizer(parts, device, settings), prior)
    for _ in range(UPDATES):
        update(batch_of(sizes, parts.tokenizer, device))
    if not gpu:
        return {}
    peaks = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    return dict(zip(("gigabytes", "reserved"), (each / 1e9 for each in peaks), strict=True))


def main() -> None:
    """Measure, and print tables or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--part", choices=("speed", "memory"), help="measure only this")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="tiny models, to see that it runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--profile", action="store_true", help="list what an update with GPT-2 consists of")
    options = parser.parse_args()
    device, sizes = find_device(options.device), TOY if options.small else FULL
    report: dict[str, Any] = {"sizes": asdict(sizes), "device": describe(device)}
    report["versions"] = versions("torch", "transformers", "peft", "priormatch")
    with quietly():
        measure(report, options, device, sizes)
    if options.json:
        print(json.dumps(report))
    else:
        show(report)


def measure(report: dict[str, Any], options: argparse.Namespace, device: torch.device, sizes: Sizes) -> None:
    """Measure what the options ask for."""
    if options.part != "speed":
        report["memory"] = measure_memory(sizes, options.small, device)
    if options.part != "memory":
        times, shares, updates = measure_speed(sizes, options.small, device, options.repetitions)
        report |= {"steps_ms": times, "shares": shares, **ratios(times)}
        if options.profile:
            update = updates["matching, GPT-2"]
            batch = batch_of(sizes, update.model.tokenizer, device)
            list_parts("matching, GPT-2", lambda: update(batch), device)


def ratios(times: dict[str, float]) -> dict[str, float]:
    """Our update relative to fine-tuning, and the other one relative to ours."""
    ours = times["matching, GPT-2"]
    return {
        "ours_to_fine_tuning": ours / times["fine-tuning"],
        "put_together_to_ours": times["put together"] / ours,
    }


def show(report: dict[str, Any]) -> None:
    """Print the tables."""
    sizes, device = report["sizes"], report["device"]
    if "steps_ms" in report:
        times = report["steps_ms"]
        table = Table(
            f"{sizes['utterances']} utterances of {sizes['seconds']} s, k = {BEAM_SIZE}, on {device}"
        )
        for name, milliseconds in times.items():
            parts = ", ".join(
                f"{part} {share * milliseconds:.0f}" for part, share in report["shares"].get(name, {}).items()
            )
            remark = f"{milliseconds / times['fine-tuning']:.2f} x fine-tuning"
            table.add(name, milliseconds, f"{remark}{'; ' if parts else ''}{parts}")
        table.show()
    if "memory" in report:
        memory = rich.table.Table(
            "", "trained", "checkpointing", "GB", "reserved", title=f"Memory on {device}"
        )
        for row in report["memory"]:
            known = [f"{row[each]:.1f}" for each in ("gigabytes", "reserved") if each in row]
            amounts = known or [row["missing"] or ""]
            memory.add_row(row["model"], row["train"], str(row["gradient_checkpointing"]), *amounts)
        Console().print(memory)


if __name__ == "__main__":
    main()
