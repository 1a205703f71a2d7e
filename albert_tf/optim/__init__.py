"""Optimizers, learning-rate schedules and the rules of variables."""
