"""The loop, optimizer groups, distribution and checkpoints."""
