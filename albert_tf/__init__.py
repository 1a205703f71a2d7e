"""ALBERT from raw text to a served model."""
