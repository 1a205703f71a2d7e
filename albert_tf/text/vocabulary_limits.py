"""How large a vocabulary that users bring may be."""

from albert_tf.config import UserError

MAX_VOCABULARY_BYTES = 16 << 20
# Pieces in a vocabulary that users bring; ALBERT's have some 30,000.
MAX_PIECES = 1_000_000


def check_number_of_pieces(count: int, source: str) -> None:
    """Raises UserError where a vocabulary has more pieces than any needs.

    So that it is refused before time and memory go into each of them.
    """
    if count > MAX_PIECES:
        raise UserError(
            f"{source} has {count:,} pieces; the most allowed is "
            f"{MAX_PIECES:,}."
        )
