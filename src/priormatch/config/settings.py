"""The tree of settings: typed dataclasses with the paper's values as defaults."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal, cast


@dataclass
class AudioSettings:
    """How audio is read."""

    # seconds; longer utterances are skipped and counted: lower it where one of them fills the memory
    longest: float = 36.0
    shortest: float = 0.1  # seconds; shorter utterances are skipped too
    # processes that read and decode audio, 0 reads in the training process; more where `time_data` is high
    workers: int = 2
    max_bad_share: float = 0.05  # of unreadable audio; above it the run stops
    segment: float = 0.0  # seconds; a run cuts unlabeled audio that is longer at its pauses; 0 never does


NormalizerKind = Literal["english", "unicode", "turkic"]


@dataclass
class LanguageSettings:
    """How the language is written; the same for transcripts, the prior's text and scores."""

    normalizer: NormalizerKind = "english"  # as the paper's; unicode: any other; turkic: with ı and İ
    alphabet: str = ""  # its letters, small ones; text with others is left out; none: whatever occurs


@dataclass
class TokenizerSettings:
    """Word pieces, the classes of the recognizer and of the prior."""

    # SentencePiece's vocabulary, its three control pieces included; fewer where there is little text
    pieces: int = 5000
    source: Literal["transcripts", "text"] = "transcripts"  # what it is trained on in a run


@dataclass
class ModelSettings:
    """The recognizer: log-mel features, TDS encoder, GRU decoder with key-value attention."""

    n_mels: int = 80  # bands of the features
    # in each stage of the encoder, which halves the frame rate; times n_mels they are its width
    channels: list[int] = field(default_factory=lambda: [10, 14, 16])
    # in each stage of the encoder; more blocks and channels want more labeled speech
    blocks: list[int] = field(default_factory=lambda: [3, 3, 3])
    kernel: int = 21  # frames that a convolution of the encoder sees; odd
    size: int = 512  # of keys, values, embeddings and the GRU
    dropout: float = 0.2  # share of the encoder's activations dropped in training
    ctc: bool = False  # an output layer for a CTC term in training; see training.ctc_weight
    longest_output: int = 150  # pieces; where the search gives up


@dataclass
class ConvLMSettings:
    """The gated convolutional language model; the default is GCNN-14B."""

    embedding: int = 1024  # width of the pieces' embeddings
    width: int = 512  # of the first gated convolution
    bottlenecks: list[list[int]] = field(
        default_factory=lambda: [[128, 512, 3], [512, 1024, 3], [1024, 2048, 6], [1024, 4096, 1]]
    )  # inner width, outer width, how many
    head: int = 1024  # width before the output layer
    kernel: int = 5  # pieces that a convolution sees
    dropout: float = 0.1  # more where the validation perplexity rises again
    context: bool = False  # trained to read the sentence before too; matching.context needs it


@dataclass
class OptimizerSettings:
    """SGD with step decay, as in the paper, or AdamW with warm-up and a cosine to zero."""

    kind: Literal["sgd", "adamw"] = "sgd"  # adamw suits small models and short runs
    learning_rate: float = 0.05  # lower it where the loss jumps or is not a number
    clip: float = 15.0  # the gradient's largest norm
    momentum: float = 0.0  # sgd
    decay_every: int = 0  # sgd: updates between decays; 0 never decays
    decay: float = 0.5  # sgd: the factor
    warm_up: int = 0  # adamw: updates of linear warm-up
    weight_decay: float = 0.0  # what pulls weights toward zero at every update


@dataclass
class BatchSettings:
    """The size of a batch, in seconds of audio or in utterances; exactly one of them is set."""

    seconds: float = 0.0  # of audio, padding counted; lower it where memory runs out
    utterances: int = 0  # however long they are


@dataclass
class AugmentSettings:
    """SpecAugment and speed perturbation; all off in the paper."""

    frequency_masks: int = 0  # bands of mel channels to hide in an utterance
    frequency_width: int = 27  # mel channels that one hides at most
    time_masks: int = 0  # stretches of time to hide in an utterance
    time_width: int = 100  # frames of 10 ms that one hides at most
    speeds: list[float] = field(default_factory=list)  # each utterance draws one of these and 1.0


@dataclass
class KeepSettings:
    """When a training puts a copy of its model aside: at the first validation that reaches one of these."""

    update: int = 0  # so many updates; 0: no matter how many
    score: float = 0.0  # or a validation score no higher: mean CER in percent, of a prior its perplexity


@dataclass
class TrainingSettings:
    """Supervised training, and what matching takes over from it."""

    seed: int = 0  # of all that is drawn; another one gives another run of the same experiment
    updates: int = 357_000  # how many; more where the validation CER still falls at the end
    batch: BatchSettings = field(default_factory=lambda: BatchSettings(utterances=16))
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(decay_every=71_000))
    label_smoothing: float = 0.1  # share of each label's weight spread over all pieces
    input_sampling: float = 0.01  # share of decoder inputs replaced by a random piece
    piece_sampling: float = 0.01  # share of words spelled by another of their ten best spellings
    # how long the soft attention window lasts; longer where attention does not form (CER stays near 100 %)
    window_updates: int = 5350
    window_deviation: float = 4.0  # frames of the encoder; how far attention may stray from the diagonal
    ctc_weight: float = 0.0  # needs model.ctc; some 0.3 helps attention to form on little speech
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    report_every: int = 100  # updates between lines of metrics.jsonl
    validate_every: int = 1784  # updates between validations, which choose the best model
    validate_on: int = 0  # utterances of each validation set to decode; 0 takes all
    checkpoint_seconds: float = 120.0  # a checkpoint is also written at every validation
    keep: dict[str, KeepSettings] = field(default_factory=dict)  # name: when; copies in `kept/NAME`


@dataclass
class PriorSettings:
    """The language model and its training."""

    model: ConvLMSettings = field(default_factory=ConvLMSettings)
    updates: int = 100_000  # how many; more where the validation perplexity still falls at the end
    batch_tokens: int = 8192  # pieces in a batch; lower it where memory runs out
    optimizer: OptimizerSettings = field(
        default_factory=lambda: OptimizerSettings("adamw", 5e-4, clip=0.1, warm_up=1000)
    )
    validate_every: int = 2000  # updates between validations
    validation_share: float = 0.01  # of the text, held out when no validation text is given
    keep: dict[str, KeepSettings] = field(default_factory=dict)  # as in training


@dataclass
class MatchingSettings:
    """Local prior matching."""

    updates: int = 1_600_000  # how many; more where the validation CER still falls at the end
    batch: BatchSettings = field(default_factory=lambda: BatchSettings(utterances=16))
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(decay_every=640_000))
    # m_l : m_u, paired to unpaired; more paired speech steadies a run that drifts away
    mixing: list[int] = field(default_factory=lambda: [1, 4])
    combine: Literal["alternate", "sum"] = "alternate"  # steps of either kind, or one update of both
    loss_weight: float = 0.2  # alpha, of the unpaired loss
    # who lists the hypotheses: the proposal alone, or with the prior in its search, by tuned values of `fusion`
    hypotheses: Literal["asr", "asr_lm"] = "asr"
    beam_size: int = 4  # k, hypotheses of an utterance; memory grows with it
    prior_exponent: float = 1.0  # a of the weights p_y^a · r^b; 0 leaves the prior out of them
    proposal_exponent: float = 0.0  # b; with a = b = 0 all hypotheses weigh the same
    # r_lb and r_ub: bounds of a hypothesis's length over the reference length; [] is none. Wider where hardly any
    # hypothesis survives, narrower where outputs get shorter and shorter
    length_filter: list[float] = field(default_factory=lambda: [0.95, 1.05])
    merge_spellings: bool = False  # one weight for a text, however it is spelled
    # where a run takes the reference lengths L from, and `match` where it is given none
    reference_lengths: Literal["greedy", "asr_lm", "speaking_rate", "oracle"] = "greedy"
    # how the proposal is updated
    refresh: Literal["better", "always", "never", "on_policy"] = "better"
    refresh_every: int = 1000  # T, updates between validations, at which the proposal may be replaced
    start_counts: bool = True  # whether the model it starts from may end up as the best
    start: str = ""  # a kept copy of the supervised model for the online model to start from; none: the best
    proposal: str = ""  # a kept copy of the supervised model for the proposal to start from; none: the best
    prior: str = ""  # a kept copy of the prior; none: the best
    # continuous pseudo-labeling to compare with: slimipl keeps labels in a cache, topipl averages the proposal
    baseline: Literal["none", "slimipl", "topipl"] = "none"
    score_labels_on: int = 200  # utterances to score the proposal on, where transcripts are known; 0: none
    inspect_on: int = 12  # unlabeled utterances whose beams are kept for the report; 0: none
    max_proposal_cer: float = 60.0  # percent; a worse proposal would teach nonsense
    context: bool = False  # the prior reads what was heard before the utterance in its recording


@dataclass
class FusionSettings:
    """A search with the prior's help: log q + λ · log p_y + a bonus, and what keeps such a search from going astray.

    Centered, log p_y of a piece is less what the prior expects of any piece there, its negative entropy: long ones
    then neither lose by it nor gain, and pieces that only end a word have nothing to win.
    A limit of infinity (`.inf` in YAML) is off; `priormatch tune` finds good values for decoding, and with
    --for-matching for the hypotheses of a proposal that is renewed. A run tunes what its matching needs by itself.
    """

    beam_size: int = 8  # hypotheses that the search follows
    lm_weight: float = 0.3  # λ
    centered: bool = False  # whether log p_y is taken less its mean over all pieces there
    token_bonus: float = 0.5  # for every piece but the end of sentence
    eos_threshold: float = 1.5  # γ: the end may follow only where log q(end) >= γ · max log q
    token_margin: float = math.inf  # δ: another piece may follow only where log q >= max log q - δ
    attention_jump: float = math.inf  # encoder frames; hypotheses whose attention jumps farther are dropped
    beam_threshold: float = math.inf  # open hypotheses that lie farther below the best extension are dropped


@dataclass
class CardSettings:
    """What the cards of the models say beside what is known of them."""

    license: str = ""  # by the Hub's names, such as cc-by-4.0; the card asks for one where there is none
    # by its ISO code, such as en, for the Hub to sort by; how it is written, language.normalizer tells
    language: str = ""


@dataclass
class DemoSettings:
    """The embedded corpus, made on the spot when a recipe asks for it."""

    seed: int = 0  # of the sentences, the voices and the noise


@dataclass
class Settings:
    """All of a run."""

    name: str = "run"  # of the run, and of its folder
    runs: str = "runs"  # where run folders lie
    device: str = "auto"  # auto, cpu, cuda, cuda:1
    threads: int = 0  # of the CPU; 0 leaves it to PyTorch
    wandb: str = ""  # a project of Weights & Biases to log to as well; needs the extra `wandb`
    corpus: Literal["own", "demo"] = "own"  # demo: make the embedded corpus and use it
    labeled: str = ""  # audio with transcripts: a folder, table, manifest or data set (docs/your-audio.md)
    unlabeled: str = ""  # audio alone, likewise
    text: str = ""  # a file or folder of text for the prior
    validation: list[str] = field(default_factory=list)  # cuts; none: speakers of `labeled` are held out
    validation_share: float = 0.1  # of `labeled`, held out where no validation set is given
    test: dict[str, str] = field(default_factory=dict)  # name: cuts; none: the validation sets are scored
    topline: str = ""  # the unlabeled cuts with their transcripts, if one has them
    pseudo_labels: bool = False  # also train on fixed pseudo-labels, for comparison
    longer_supervised: bool = True  # also train the supervised system for as many updates as matching had
    demo: DemoSettings = field(default_factory=DemoSettings)
    audio: AudioSettings = field(default_factory=AudioSettings)
    language: LanguageSettings = field(default_factory=LanguageSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    prior: PriorSettings = field(default_factory=PriorSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    matching: MatchingSettings = field(default_factory=MatchingSettings)
    fusion: FusionSettings = field(default_factory=FusionSettings)
    card: CardSettings = field(default_factory=CardSettings)


def all_keys(kind: type = Settings, before: str = "") -> list[str]:
    """Every dotted key of the tree."""
    keys = []
    for each in dataclasses.fields(kind):
        keys.append(before + each.name)
        if dataclasses.is_dataclass(each.type):
            keys += all_keys(cast(type, each.type), f"{before}{each.name}.")
    return keys
