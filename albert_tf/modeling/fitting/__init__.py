"""What Keras' `fit`, `evaluate` and `predict` need of a model with heads."""
