"""Words as search and simple models count them, in all scripts."""

from albert_tf.text.character_class import CharacterClass
from albert_tf.text.wordpiece import IDEOGRAPHS, WORD_MARKS

# Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, Chinese
# and Japanese; and Korean, whose particles stand at the word.
_UNSPACED = IDEOGRAPHS.codes.union(
    CharacterClass.parse(
        """
        E01-E3A E40-E4E E81-EBD EC0-ECD EDC-EDF 1000-103F 1050-108F 1780-17D3
        3005-3007 3041-3096 309D-309F 30A1-30FA 30FC-30FF 31F0-31FF AC00-D7A3
        2CEB0-323AF
        """
    ).codes
)
UNSPACED = CharacterClass(_UNSPACED).pattern
_MARKS = CharacterClass(WORD_MARKS.codes - _UNSPACED).pattern
_LETTERS = rf"[^\W{UNSPACED[1:-1]}]"
# A word, or a character of such a script, for `re`.
TERM = rf"{UNSPACED}|{_LETTERS}+(?:{_MARKS}+{_LETTERS}*)*"
