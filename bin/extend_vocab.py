"""A model whose vocabulary has words of another domain as well.

python -m bin.extend_vocab --model_dir=runs/small --input='medical/*.txt' \\
    --num_new_tokens=4000 --output_dir=small-medical
"""

from absl import flags

from bin import command_line, corpora, own_rows

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    corpora.define_flags()
    flags.DEFINE_string(
        "model_dir", None, "Model or run directory to extend a copy of."
    )
    flags.DEFINE_string("output_dir", None, "Directory for the larger model.")
    flags.DEFINE_integer(
        "num_new_tokens",
        None,
        "Number of words of the input that become pieces of their own: those "
        "that shorten it most.",
        lower_bound=1,
    )
    command_line.required("model_dir", "input", "output_dir")
    flags.mark_flag_as_required("num_new_tokens")


def main() -> None:
    from albert_tf.config import require
    from albert_tf.io import files

    output_dir = FLAGS.output_dir
    require(
        not files.exists(output_dir),
        f"{output_dir} exists; choose a new directory for --output_dir.",
    )
    surveys = corpora.survey()
    command_line.load_tensorflow()
    from albert_tf.interchange.model_directory import (
        load_model_directory,
        save_model_directory,
    )
    from albert_tf.modeling.weights.vocabulary_extension import (
        extend_vocabulary,
    )
    from data_prep.new_words import count_words, pieces_per_word, select_words

    loaded = load_model_directory(FLAGS.model_dir)
    tokenizer = loaded.tokenizer
    tokenizer.with_words([])  # Raises for one that cannot have any.
    counts = count_words(corpora.paragraphs(surveys), tokenizer)
    words = select_words(counts, tokenizer, FLAGS.num_new_tokens)
    larger = tokenizer.with_words(words)
    save_model_directory(
        output_dir,
        extend_vocabulary(loaded.model, tokenizer.encode_batch(words)),
        larger,
        max_seq_length=loaded.max_seq_length,
        task=loaded.task,
    )
    before, after = (pieces_per_word(counts, t) for t in (tokenizer, larger))
    print(
        f"{len(words)} new pieces, among them {', '.join(words[:10])}. The "
        f"input has {before:.2f} pieces per word before and {after:.2f} with "
        f"them.\n{output_dir} has a vocabulary of {larger.vocab_size}; build "
        f"shards with --tokenizer={output_dir} and pretrain with "
        f"--init_from={output_dir}."
    )


if __name__ == "__main__":
    command_line.run(define_flags, main)
