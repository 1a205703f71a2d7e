"""Texts and characters on which clean-ups tend to differ."""

from albert_tf.text.normalization import normalize
from albert_tf.text.wordpiece import split_words
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

AWKWARD_TEXTS = [
    "",
    " ",
    "\0",
    "a\0b\0",
    "\t a \x1c\x85\u2028\u3000 b\r\n\xa0",
    "\ufeffBOM and \ufeff inside",
    "``Quoted'' '''three''' ````four```` ``\u0301 `'",
    "ΟΔΟΣ ΣΑΣ Σ. ΑΣ\u0301 aΣ'b ς",
    "İstanbul IĞDIR ı I\u0307 i\u0307",
    "Straße STRASSE ẞ",
    "한국어 \u1112\u1161\u11ab 각 ｶﾞ",
    "豈更 ㍿ ﷽ ﬁ ½ ㎏ Ⅷ ① ｆｕｌｌ",
    "e\u0301\u0327 a\u0327\u0301 \u0301 \u0345\u0301x\u0334\u0323",
    "e" + "\u0301" * 1000,
    "a\u302e\U0001d165\u0301b 中\u0301\u302e\u200d\u0301国 中\u200d",
    "a\U000e0100\u0301b 中\U000e0101國",
    "👩‍👩‍👧‍👦 🇩🇪 🫨 👍🏽 ☺️",
    "שלום עולם \u202eabc\u202c مرحبا \u200f",
    "\u200b\u200c\u200d\u2060\u00ad e\u200d\u0301x",
    "\ufffd\ufffc\ufdd0\U0010ffff\ue000",
    "a\u00b4b \u00a8 \u1fbf",
    "[CLS] <pad> [MASK] <unk> </s> ▁ ▁a a▁b",
    "1,000 8, 18,8, a8, a70, 9,9,9, 8, \uff18,",
    "\U00010570\u2c2f\ua7c0\U0001e030x\U00010d69",
    "unaffable's UNABLE ##able " + "x" * 5000,
]
AWKWARD_CHARACTERS = (
    "aAbe \t\xa0\u0301\u0327'`8,éΣσIİ\u0307한ﬁ½´中😀\u200d\u302e\0▁"
)
# Where characters decompose, combine, change case or have a category of note;
# samples of the ideographs and private characters beyond.
NOTABLE_CODES = (
    *range(0xD800),
    *range(0xE001, 0x20000),
    *range(0x20000, 0x2F800, 499),
    *range(0x2F800, 0x2FA20),
    *range(0x2FA20, 0xE0000, 4999),
    *range(0xE0000, 0xE0200),
    *range(0xE0200, 0x110000, 4999),
    0x10FFFF,
)
# A character in contexts of marks that are put in order and of capital sigma.
CONTEXTS = ("{}", "\u0345{}", "e{}\u0301\u0345\u0327", "aΣ\U0001d165{}\u302eΣ")


def clean(tokenizer, text):
    """Returns the clean text that Python splits into pieces."""
    if isinstance(tokenizer, WordPieceTokenizer):
        return " ".join(split_words(text, **tokenizer.settings))
    return normalize(text, **tokenizer.settings)
