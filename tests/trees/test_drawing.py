"""Trees as text."""

from foldbatch.trees import Tree

SENTENCE = Tree.from_nested(("S", ("NP", ("D", "the"), ("N", "film")), ("VP", ("V", "slept"))))


def test_every_node_has_a_line_with_its_label_and_token():
    assert SENTENCE.draw().splitlines() == [
        "S",
        "├─ NP",
        "│  ├─ D the",
        "│  └─ N film",
        "└─ VP",
        "   └─ V slept",
    ]


def test_what_lies_below_the_last_level_is_counted():
    assert SENTENCE.draw(levels=1).splitlines() == ["S", "├─ NP … 2 more below", "└─ VP … 1 more below"]
    assert SENTENCE.draw(levels=0) == "S … 5 more below"


def test_what_comes_after_the_last_node_is_counted():
    assert SENTENCE.draw(nodes=3).splitlines() == ["S", "├─ NP", "│  ├─ D the", "… 3 more nodes"]


def test_a_node_without_a_label_is_a_star_and_labels_may_be_integers():
    assert Tree([1, -1], [None, 0], ["w", None]).draw().splitlines() == ["0", "└─ * w"]


def test_characters_that_would_break_a_line_are_spelled_out():
    assert Tree.leaf("a\nb", "8\u00a01/2\t\u00e4").draw() == "a\\nb 8\\xa01/2\\t\u00e4"
    assert Tree.leaf("S", "").draw() == "S ''"
