"""Predictions for raw texts, by a model or by its export."""
