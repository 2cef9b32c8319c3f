"""The loop, optimiser groups, distribution and checkpoints."""
