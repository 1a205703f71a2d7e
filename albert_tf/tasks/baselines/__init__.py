"""Simple models that a fine-tuned one is compared with."""
