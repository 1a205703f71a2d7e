"""What a trained model does inside: measurements of its states."""
