from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from priormatch.models.token_trees import Scored, common, trees_of

SEQUENCES = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=6).flatmap(
        lambda tokens: st.builds(Scored, st.just((9, *tokens)), st.integers(1, len(tokens) + 1))
    ),
    max_size=8,
)


def test_a_tree_by_hand() -> None:
    first, second, other = Scored((9, 1, 2, 3), 1), Scored((9, 1, 4, 3), 2), Scored((9, 5, 6), 1)
    (tree,) = trees_of([second, other, first], 10)
    assert tree.tokens == [9, 1, 2, 4, 5]
    assert tree.parents == [-1, 0, 1, 1, 0]
    assert tree.depths == [0, 1, 2, 2, 1]
    assert dict(zip(tree.sequences, tree.nodes, strict=True)) == {2: [0, 1, 2], 0: [1, 3], 1: [0, 4]}
    assert tree.first == 0
    assert tree.sees().int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 0, 0, 0, 1],
    ]


@given(SEQUENCES, st.integers(0, 12))
def test_every_scored_token_follows_its_own_beginning(sequences: list[Scored], most: int) -> None:
    trees = trees_of(sequences, most)
    numbers = [number for tree in trees for number in tree.sequences]
    assert sorted(numbers) == [n for n, each in enumerate(sequences) if each.start < len(each.tokens)]
    for tree in trees:
        sees = tree.sees()
        assert len(tree.tokens) <= most or len(tree.sequences) == 1
        for number, nodes in zip(tree.sequences, tree.nodes, strict=True):
            tokens, start = sequences[number]
            assert len(nodes) == len(tokens) - start
            for end, node in enumerate(nodes, start):
                seen = sees[node].nonzero().flatten().tolist()
                assert tuple(tree.tokens[each] for each in seen) == tokens[:end]
                assert [tree.depths[each] for each in seen] == [*range(end)]
            assert all(tree.parents[after] == before for before, after in pairwise(nodes))


def test_what_two_sequences_share() -> None:
    assert common((1, 2, 3), (1, 2, 4)) == 2
    assert common((1, 2), (1, 2, 4)) == 2
    assert common((), (1,)) == 0
