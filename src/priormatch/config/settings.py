"""The tree of settings: typed dataclasses with the paper's values as defaults."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal, cast


@dataclass
class AudioSettings:
    """How audio is read and which utterances are used."""

    # seconds; longer utterances are skipped and counted; lower it if one of them exhausts the memory
    longest: float = 36.0
    shortest: float = 0.1  # seconds; shorter utterances are skipped and counted too
    # processes that read and decode audio; 0: the training process itself; raise it if `time_data` is high
    workers: int = 2
    max_bad_share: float = 0.05  # maximum share of unreadable audio; above it the run stops
    # share of a GPU's free memory for decoded audio; a training corpus that fits is decoded once, a larger one in every
    # epoch; 0 always decodes in every epoch
    gpu_share: float = 0.1
    segment: float = 0.0  # seconds; longer unlabeled audio is cut at its pauses; 0 disables


ORACLE = "oracle"
"""The value of `matching.prior` for a prior that knows the transcripts."""
NormalizerKind = Literal["english", "unicode", "turkic"]


TextForm = Literal["as_written", "lower", "sentence"]


@dataclass
class LanguageSettings:
    """Text normalization, the same for transcripts, the prior's text and scoring."""

    # english: as in the paper; unicode: any other language; turkic: languages with ı and İ
    normalizer: NormalizerKind = "english"
    alphabet: str = ""  # lowercase letters; text with other letters is skipped; empty: all letters that occur


@dataclass
class TokenizerSettings:
    """Tokens (word pieces or characters), which are the output classes of the recognizer and the prior."""

    # size of the SentencePiece vocabulary, including three control pieces; lower it if there is little text
    pieces: int = 5000
    source: Literal["transcripts", "text"] = "transcripts"  # what a run trains the tokenizer on
    # unigram: SentencePiece word pieces; characters: single letters (`pieces` then has no effect)
    kind: Literal["unigram", "characters"] = "unigram"


@dataclass
class ConformerSettings:
    """The Conformer encoder; the default has 19 million parameters."""

    width: int = 256  # size of the frames
    layers: int = 12  # blocks
    heads: int = 4  # attention heads; the width must be divisible by twice this number
    kernel: int = 31  # width of the convolutions in frames; odd
    subsampling: int = 4  # 4 or 8; the encoder's frame rate is 100 per second divided by this


@dataclass
class ModelSettings:
    """The recognizer: log-mel features, an encoder, and a GRU decoder with attention, a CTC output layer, or both."""

    n_mels: int = 80  # mel bands of the features
    # channels of each encoder stage; its width is channels times n_mels, and it halves the frame rate
    channels: list[int] = field(default_factory=lambda: [10, 14, 16])
    # blocks of each encoder stage; more blocks and channels need more labeled speech
    blocks: list[int] = field(default_factory=lambda: [3, 3, 3])
    kernel: int = 21  # width of the encoder's convolutions in frames; odd
    size: int = 512  # attention and hybrid: dimension of keys, values, embeddings and the GRU
    dropout: float = 0.2  # dropout rate of the encoder
    longest_output: int = (
        150  # attention, and hybrid that decodes by attention alone: maximum length of a hypothesis in tokens
    )
    # attention: as in the paper; ctc: an output layer over the frames; hybrid: both over one encoder
    kind: Literal["attention", "ctc", "hybrid"] = "attention"
    # hybrid: weight w of CTC in log q and in the search; attention has 1 - w; 0 decodes by attention alone
    ctc_weight: float = 0.0
    encoder: Literal["tds", "conformer"] = (
        "tds"  # tds uses channels, blocks and kernel; conformer uses the next group
    )
    conformer: ConformerSettings = field(default_factory=ConformerSettings)


@dataclass
class ConvLMSettings:
    """The gated convolutional language model; the default is GCNN-14B."""

    embedding: int = 1024  # dimension of the piece embeddings
    width: int = 512  # width of the first gated convolution
    bottlenecks: list[list[int]] = field(
        default_factory=lambda: [[128, 512, 3], [512, 1024, 3], [1024, 2048, 6], [1024, 4096, 1]]
    )  # [inner width, outer width, number of blocks] for each group
    head: int = 1024  # width of the layer before the output layer
    kernel: int = 5  # width of the convolutions in tokens
    dropout: float = 0.1  # dropout rate; raise it if the validation perplexity starts to rise
    context: bool = False  # also train with the previous sentence as context; matching.context needs it


@dataclass
class PretrainedSettings:
    """A Hugging Face recognizer to start from, instead of `model`; needs the extra `hf`."""

    recognizer: str = ""  # its folder, or its name on the Hub (owner/name[@revision]); empty: train `model`
    # full: all weights except the convolutions over waveforms; decoder: the weights after the encoder, or the output
    # layer of CTC; lora: low-rank adapters for all layers, and the output layer of CTC
    train: Literal["full", "decoder", "lora"] = "full"
    lora_rank: int = 16  # lora: rank of the adapters; higher ranks have more capacity
    gradient_checkpointing: bool = False  # recompute activations for the gradient: less memory, more time
    language: str = ""  # Whisper: output language, for example en
    task: Literal["transcribe", "translate"] = "transcribe"  # Whisper: translate writes English


@dataclass
class OptimizerSettings:
    """SGD with step decay, as in the paper, or AdamW with warm-up and cosine decay to zero."""

    kind: Literal["sgd", "adamw"] = "sgd"  # adamw suits small models and short runs
    learning_rate: float = 0.05  # lower it if the loss jumps or is NaN
    clip: float = 15.0  # maximum gradient norm
    momentum: float = 0.0  # sgd: momentum
    decay_every: int = 0  # sgd: updates between decays of the learning rate; 0 disables
    decay: float = 0.5  # sgd: factor of each decay
    warm_up: int = 0  # adamw: updates of linear warm-up of the learning rate
    weight_decay: float = 0.0  # weight decay of every update


@dataclass
class BatchSettings:
    """Batch size, in seconds of audio or in utterances; set exactly one."""

    seconds: float = 0.0  # seconds of audio including padding; lower it if memory runs out
    utterances: int = 0  # number of utterances of any length
    # number of shapes that batches are padded to; a GPU records a step for each shape, so fewer shapes start faster but
    # need more padding; 0: batches of any shape
    buckets: int = 0
    # gradient accumulation: number of parts in which each process computes its share of a batch, to save memory
    accumulate: int = 1


@dataclass
class AugmentSettings:
    """SpecAugment and speed perturbation; the paper uses neither."""

    frequency_masks: int = 0  # frequency masks per utterance
    frequency_width: int = 27  # maximum width of a frequency mask in mel bands
    time_masks: int = 0  # time masks per utterance
    time_width: int = 100  # maximum width of a time mask in frames of 10 ms
    speeds: list[float] = field(
        default_factory=list
    )  # speed factors; each utterance draws one of these or 1.0


@dataclass
class KeepSettings:
    """When training keeps a copy of its model: at the first validation that reaches the value. Set exactly one."""

    update: int = 0  # keep a copy at this update; 0 disables
    # keep a copy at this validation score or below: mean CER in percent, or perplexity of the prior; 0 disables
    score: float = 0.0


@dataclass
class TrainingSettings:
    """Supervised training, and settings that matching shares with it."""

    seed: int = 0  # random seed
    updates: int = 357_000  # number of updates; raise it if the validation CER still falls at the end
    batch: BatchSettings = field(default_factory=lambda: BatchSettings(utterances=16))
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(decay_every=71_000))
    # attention and hybrid: share of each label's probability that is spread over all tokens
    label_smoothing: float = 0.1
    input_sampling: float = 0.01  # attention and hybrid: share of decoder inputs replaced by random tokens
    # unigram: share of words with another segmentation, drawn from the ten best; characters: no effect
    piece_sampling: float = 0.01
    # attention and hybrid: updates with the soft attention window; raise it if attention does not form (CER stays near
    # 100 %)
    window_updates: int = 5350
    window_deviation: float = 4.0  # standard deviation of that window, in encoder frames from the diagonal
    # hybrid: weight of the CTC loss added to the attention loss; about 0.3 helps attention form with little speech
    ctc_weight: float = 0.0
    # ctc and hybrid: weight of the divergence between the CTC outputs for two augmented views of each utterance
    # (CR-CTC), for example 0.2; each update then encodes its batch twice, so halve batch.seconds
    consistency: float = 0.0
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    report_every: int = 100  # updates between lines of metrics.jsonl
    validate_every: int = 1784  # updates between validations, which select the best model
    validate_on: int = 0  # utterances to decode from each validation set; 0 decodes all
    checkpoint_seconds: float = (
        120.0  # seconds between checkpoints, shorter at first; each validation also writes one
    )
    keep: dict[str, KeepSettings] = field(default_factory=dict)  # copies of the model to keep in `kept/NAME`


@dataclass
class PriorSettings:
    """The language model and its training; for an n-gram model, only `order` and `validation_share` have an effect."""

    # conv: the paper's convolutional network over tokens; ngram: a word n-gram model, which scores hypotheses as text
    kind: Literal["conv", "ngram"] = "conv"
    order: int = 4  # ngram: number of words of the longest n-grams
    model: ConvLMSettings = field(default_factory=ConvLMSettings)
    updates: int = 100_000  # number of updates; raise it if the validation perplexity still falls at the end
    batch_tokens: int = 8192  # tokens in a batch; lower it if memory runs out
    optimizer: OptimizerSettings = field(
        default_factory=lambda: OptimizerSettings("adamw", 5e-4, clip=0.1, warm_up=1000)
    )
    validate_every: int = 2000  # updates between validations
    validation_share: float = 0.01  # share of the text held out if no validation text is given
    # size of a separate SentencePiece vocabulary for the prior, trained on its text; the prior then scores hypotheses
    # as text; 0: the recognizer's tokenizer
    pieces: int = 0
    keep: dict[str, KeepSettings] = field(default_factory=dict)  # copies of the prior to keep, as in training
    # a trained prior to use instead: the folder, or the name on the Hub (owner/name[@revision]), of a priormatch prior
    # or a Hugging Face causal language model; empty: a run trains one on `text`
    pretrained: str = ""
    # form in which a Hugging Face prior reads the recognizer's text; sentence: with a capital at the start and a period
    # at the end, and not all in capitals, for models of written text; other priors normalize text themselves
    text_form: TextForm = "as_written"


@dataclass
class MatchingSettings:
    """Local prior matching."""

    updates: int = 1_600_000  # number of updates; raise it if the validation CER still falls at the end
    batch: BatchSettings = field(default_factory=lambda: BatchSettings(utterances=16))
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(decay_every=640_000))
    # m_l : m_u, the ratio of paired to unpaired speech; more paired speech stabilizes a run that drifts
    mixing: list[int] = field(default_factory=lambda: [1, 4])
    # alternate: an update is either paired or unpaired; sum: every update has both losses
    combine: Literal["alternate", "sum"] = "alternate"
    loss_weight: float = 0.2  # alpha, the weight of the unpaired loss
    # how the proposal finds hypotheses; asr: alone; asr_lm: by shallow fusion with the prior, with tuned `fusion`
    # settings
    hypotheses: Literal["asr", "asr_lm"] = "asr"
    beam_size: int = 4  # k, hypotheses per utterance; larger beams need more memory
    # a in the weights p_y^a · r^b: 1 / T, where T is the temperature of the prior; below 1 the weights are flatter; 0
    # removes the prior from them
    prior_exponent: float = 1.0
    proposal_exponent: float = 0.0  # b in the weights; with a = b = 0 they are uniform
    # exponent x: log p_y is divided by n^x, where n is the length of the hypothesis in tokens; 0: as in the paper; 1:
    # the mean per token, for a prior that prefers short hypotheses
    length_normalization: float = 0.0
    # r_lb and r_ub, bounds on a hypothesis's length relative to the reference length; [] disables; widen them if few
    # hypotheses pass; narrow them if outputs keep getting shorter
    length_filter: list[float] = field(default_factory=lambda: [0.95, 1.05])
    merge_spellings: bool = False  # give each text one weight, however it is split into pieces
    # source of the reference lengths L in a run, and in `match` if none are given
    reference_lengths: Literal["greedy", "asr_lm", "speaking_rate", "oracle"] = "greedy"
    # when the online model replaces the proposal
    refresh: Literal["better", "always", "never", "on_policy"] = "better"
    refresh_every: int = 1000  # T, updates between validations; each may replace the proposal
    # search for the hypotheses of an utterance only once for each proposal, not in every epoch; saves most of the time
    # of a slow search, such as asr_lm with CTC, if refreshes are several epochs apart
    list_once: bool = False
    start_counts: bool = True  # whether the initial model can be selected as the best model
    start: str = ""  # kept copy of the supervised model that initializes the online model; empty: the best
    proposal: str = ""  # kept copy of the supervised model that initializes the proposal; empty: the best
    # kept copy of the prior; empty: the best; oracle: a prior that knows the transcripts in `topline`, to measure how
    # much a better prior could gain
    prior: str = ""
    # continuous pseudo-labeling baseline; slimipl caches labels; topipl averages the proposal
    baseline: Literal["none", "slimipl", "topipl"] = "none"
    score_labels_on: int = 200  # unlabeled utterances for label_wer, if transcripts are known; 0 disables
    inspect_on: int = 12  # unlabeled utterances whose beams are kept for the report; 0 disables
    max_proposal_cer: float = 60.0  # percent; matching refuses to start above this validation CER
    context: bool = (
        False  # whether the prior also reads the transcript of the previous utterance in the recording
    )


@dataclass
class FusionSettings:
    """Shallow fusion: beam search by log q + λ · log p_y + a bonus per token, with limits against its typical failures.

    If centered, the expectation of log p_y under the prior (its negative entropy) is subtracted from log p_y of each
    token. Long hypotheses then neither lose nor gain, and tokens that only complete a word gain nothing.
    Set a limit to infinity (`.inf` in YAML) to disable it. The limits have no effect with CTC search, or if the prior
    has its own tokenizer and therefore only rescores hypotheses. `priormatch tune` finds values for decoding, and with
    --for-matching values for the hypotheses of a proposal that is refreshed. A run tunes the values that its matching
    needs.
    """

    beam_size: int = 8  # beam size of the search
    lm_weight: float = 0.3  # λ, the weight of the prior
    centered: bool = False  # whether to subtract the expectation of log p_y
    token_bonus: float = 0.5  # bonus for each of the recognizer's tokens except the end of sentence
    eos_threshold: float = 1.5  # γ: a hypothesis may end only if log q(end) >= γ · max log q
    token_margin: float = math.inf  # δ: any other token is allowed only if log q >= max log q - δ
    attention_jump: float = math.inf  # encoder frames; hypotheses whose attention jumps farther are dropped
    beam_threshold: float = math.inf  # unfinished hypotheses farther below the best extension are dropped


@dataclass
class CardSettings:
    """Fields of the model cards that a run cannot fill in itself."""

    license: str = ""  # Hub name of the license, such as cc-by-4.0; if empty, the card asks for one
    # ISO code for the Hub, such as en; does not affect text normalization, see language.normalizer
    language: str = ""


@dataclass
class DemoSettings:
    """The demo corpus, generated if corpus=demo."""

    seed: int = 0  # random seed of the sentences, voices and noise


@dataclass
class Settings:
    """All settings of a run."""

    name: str = "run"  # name of the run and its folder
    runs: str = "runs"  # parent folder of run folders
    device: str = "auto"  # auto, cpu, cuda, cuda:1
    threads: int = 0  # CPU threads of each process; 0 uses PyTorch's default
    # use a second process to train the prior, the topline and the longer supervised system and to decode the test sets
    parallel: bool = False
    wandb: str = ""  # Weights & Biases project to log to; needs the extra `wandb`
    corpus: Literal["own", "demo"] = "own"  # demo: generate and use the demo corpus
    labeled: str = ""  # audio with transcripts: a folder, table, manifest or dataset (docs/your-audio.md)
    unlabeled: str = ""  # audio without transcripts, in the same formats
    text: str = ""  # text file or folder for the prior
    # validation sets; if empty, speakers of `labeled` are held out
    validation: list[str] = field(default_factory=list)
    validation_share: float = 0.1  # share of `labeled` held out if no validation set is given
    test: dict[str, str] = field(default_factory=dict)  # test sets; if empty, the validation sets are scored
    topline: str = ""  # the unlabeled cuts with transcripts, if available
    pseudo_labels: bool = False  # also train a system on fixed pseudo-labels, for comparison
    longer_supervised: bool = True  # also train the supervised system for as many updates as matching
    demo: DemoSettings = field(default_factory=DemoSettings)
    audio: AudioSettings = field(default_factory=AudioSettings)
    language: LanguageSettings = field(default_factory=LanguageSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    pretrained: PretrainedSettings = field(default_factory=PretrainedSettings)
    prior: PriorSettings = field(default_factory=PriorSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    matching: MatchingSettings = field(default_factory=MatchingSettings)
    fusion: FusionSettings = field(default_factory=FusionSettings)
    card: CardSettings = field(default_factory=CardSettings)

    @property
    def needs_text(self) -> bool:
        """Whether a run trains anything on text: the prior, or the tokenizer of a recognizer from scratch."""
        makes_pieces = not self.pretrained.recognizer and self.tokenizer.source == "text"
        return makes_pieces or not self.prior.pretrained


def all_keys(kind: type = Settings, before: str = "") -> list[str]:
    """Every dotted key of the tree, including those of groups."""
    keys = []
    for each in dataclasses.fields(kind):
        keys.append(before + each.name)
        if dataclasses.is_dataclass(each.type):
            keys += all_keys(cast(type, each.type), f"{before}{each.name}.")
    return keys
