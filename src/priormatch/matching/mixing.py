"""Mixing paired and unpaired data, m_l : m_u."""


def is_paired(update: int, paired: int, unpaired: int) -> bool:
    """Whether an alternating update takes paired data: the rarer kind at even distances.

    A pure function of the update's number, so that all processes agree; 1:4 gives UUUP UUUUP UUUUP, 1:1 PUPU,
    4:1 PPPU PPPPU, as the authors' code does.
    """
    total, rarer = paired + unpaired, min(paired, unpaired)
    rare = (update + 2) * rarer // total > (update + 1) * rarer // total
    return rare if paired <= unpaired else not rare


def paired_share(paired: int, unpaired: int) -> float:
    """The paired data's share of a batch that holds both kinds."""
    return paired / (paired + unpaired)
