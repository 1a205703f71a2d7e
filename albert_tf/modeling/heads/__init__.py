"""Heads on the encoder: one class declares a head, HEADS lists them."""

from albert_tf.modeling.heads.base import DenseHead as DenseHead
from albert_tf.modeling.heads.base import Head as Head
from albert_tf.modeling.heads.base import LabelledOutput as LabelledOutput
from albert_tf.modeling.heads.classification import (
    ClassificationHead,
    MultiLabelHead,
    MultipleChoiceHead,
    RegressionHead,
    TokenClassificationHead,
)
from albert_tf.modeling.heads.embedding import SentenceEmbeddingHead
from albert_tf.modeling.heads.pretraining import MaskedLMHead, SentenceOrderHead
from albert_tf.modeling.heads.spans import AnswerableSpanHead, SpanHead

HEADS: dict[str, type[Head]] = {
    head.head_name: head
    for head in (
        MaskedLMHead,
        SentenceOrderHead,
        ClassificationHead,
        MultiLabelHead,
        RegressionHead,
        MultipleChoiceHead,
        TokenClassificationHead,
        SpanHead,
        AnswerableSpanHead,
        SentenceEmbeddingHead,
    )
}
