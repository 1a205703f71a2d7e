"""Kinds of tasks: from examples to features, predictions and metrics."""
