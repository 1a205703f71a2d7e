"""The texts of a task's training examples as text to pretrain on.

python -m bin.build_task_corpus --task=MRPC --data_dir=glue/MRPC \\
    --output_dir=mrpc-text
"""

import shlex

from absl import flags

from bin import command_line, own_rows, tasks

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    tasks.define_flags("Task whose texts to write.")
    flags.DEFINE_string("output_dir", None, "Directory for the corpus.")
    command_line.required("data_dir", "output_dir")


def main() -> None:
    from data_prep.task_corpus import build_task_corpus

    task, output_dir = tasks.chosen(), FLAGS.output_dir
    corpus = build_task_corpus(task, FLAGS.data_dir, output_dir)
    objective = "nsp" if corpus.has_pairs else "none"
    print(
        f"{corpus.num_documents} documents are in {output_dir}; build shards "
        f"with --input={shlex.quote(output_dir)} --sentence_splitter=newline "
        f"--sentence_objective={objective}."
    )


if __name__ == "__main__":
    command_line.run(define_flags, main)
