"""Whole jobs: pretraining, fine-tuning, evaluation."""
