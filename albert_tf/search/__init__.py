"""Search: indices of passages, rankings by vectors and by words."""
