"""The paper's fine-tuning settings (Table 14)."""


def recipe(
    learning_rate: float,
    train_batch_size: int,
    dropout: float,
    num_train_steps: int,
    num_warmup_steps: int,
    max_seq_length: int = 512,
) -> dict[str, float]:
    """Returns a row of the paper's Table 14, whose columns these are.

    `dropout` is that within the encoder; the classifier's is 0.1 everywhere.
    """
    return {
        "learning_rate": learning_rate,
        "train_batch_size": train_batch_size,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "classifier_dropout_prob": 0.1,
        "num_train_steps": num_train_steps,
        "num_warmup_steps": num_warmup_steps,
        "max_seq_length": max_seq_length,
    }
