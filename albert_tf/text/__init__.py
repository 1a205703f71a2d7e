"""Text <-> token ids <-> records."""
