"""Pieces with their scores (`*.vocab`), read as a SentencePiece model."""

import io

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import UserError, require, shown
from albert_tf.io.json_files import read_at_most
from albert_tf.text.tokenizer_base import (
    MAX_VOCABULARY_BYTES,
    SENTENCEPIECE_SPECIALS,
    SPACE,
)
from albert_tf.text.tokenizer_json_reader import (
    scored_pieces,
    sentencepiece_model,
)


def read_piece_scores(path: str) -> bytes:
    """Returns the SentencePiece model of a file of pieces and scores.

    Its clean-up is that of SentencePiece's trainer, and of the released
    models: nmt_nfkc.

    Raises:
        UserError: for lines that are no such pairs, or without <unk>.
    """
    rows = []
    lines = read_at_most(path, MAX_VOCABULARY_BYTES).removesuffix(b"\n")
    for number, line in enumerate(lines.split(b"\n") if lines else (), 1):
        try:
            piece, score = line.decode().rstrip("\r").split("\t")
            rows.append([piece, float(score)])
        except ValueError:
            raise UserError(
                f"{path}, line {number}: expected a piece, a tab and its "
                f"score, got {shown(line.decode(errors='replace'))}."
            ) from None
    try:
        pieces = scored_pieces(rows)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    names = [piece for piece, _ in pieces]
    # Only signs have 0. Merges have ranks, and words no pieces within them.
    scores = {piece: score for piece, score in pieces if score}
    require(
        [*scores.values()] != [-float(i + 1) for i in range(len(scores))]
        and not all(piece.startswith(SPACE) for piece in scores),
        f"{path} is that of a model of type BPE or word, whose ids do not "
        "follow from pieces and scores: use its .model.",
    )
    unknown = SENTENCEPIECE_SPECIALS["unk_token"]
    require(
        unknown in names, f"{path} has no piece {unknown}, which ALBERT needs."
    )
    return sentencepiece_model(
        pieces,
        unknown=names.index(unknown),
        # The trainer's own ones too, which some vocabularies have as well.
        special={*SENTENCEPIECE_SPECIALS.values(), "<s>", "</s>"},
        charsmap=_character_map(),
    )


def _character_map() -> bytes:
    """Returns nmt_nfkc, which SentencePiece gives to trained models only."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a"]),
        model_writer=trained,
        model_type="char",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(trained.getvalue())
    return model.normalizer_spec.precompiled_charsmap
