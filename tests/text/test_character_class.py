import re

import pytest

from albert_tf.text.character_class import CharacterClass


@pytest.mark.parametrize(
    "characters",
    ["", "a", "\0", "]^-\\[", "é\uffff", "\U00010000", "a\U0001f600\U0010ffff"],
)
def test_sub_is_that_of_the_pattern(characters):
    text = "\0ab]^-\\[é\uffff\ufffe\U00010000\U00010001\U0001f600\U0010ffff"
    some = CharacterClass(map(ord, characters))
    expected = "".join("<>" if c in characters else c for c in text)
    assert some.sub("<>", text) == expected
    assert [c for c in text if c in some] == [
        c for c in text if c in characters
    ]
    if characters:
        assert re.sub(some.pattern, "<>", text) == expected
