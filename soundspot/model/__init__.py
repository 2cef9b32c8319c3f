"""The parts of the paper, and the methods made of them."""
