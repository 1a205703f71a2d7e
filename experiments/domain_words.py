"""The check of a domain's text, before the models that it is to extend."""

import os

from albert_tf.config import require
from albert_tf.text.tokenizer import load_tokenizer
from data_prep.corpus.forms import corpus_files
from data_prep.corpus.listing import list_files
from data_prep.corpus.reading import read_file
from data_prep.corpus.report import CorpusReport
from data_prep.new_words import count_words, new_words
from experiments.units import Unit


def check_domain_words(extension: Unit, tokenizer_dir: str) -> None:
    """Checks that a text has the words by which a vocabulary is extended.

    `extension` is a unit of that kind, and the tokenizer that of its model.

    Raises:
        UserError: when the text has fewer.
    """
    text, number = (extension.settings[n] for n in ("input", "num_new_tokens"))
    tokenizer = load_tokenizer(tokenizer_dir)
    paths = list_files(text.split(","))
    files = corpus_files(
        paths,
        list(map(os.path.basename, paths)),
        "auto",
        skip_header_lines=extension.settings["skip_header_lines"],
    )
    paragraphs = (
        paragraph
        for file in files
        for document in read_file(file, CorpusReport())
        for paragraph in document.paragraphs
    )
    found = len(new_words(count_words(paragraphs, tokenizer), tokenizer))
    require(
        found >= number,
        f"--domain_input={text}: expected {number} words or more that occur "
        f"twice and that the vocabulary of --input splits, got {found}; give "
        "more text of the domain.",
    )
