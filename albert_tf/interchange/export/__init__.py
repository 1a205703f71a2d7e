"""What an export consists of: the graph from raw strings to answers."""
