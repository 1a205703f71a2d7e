"""What bin.benchmark is made of."""
