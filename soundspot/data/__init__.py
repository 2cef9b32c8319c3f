"""Pair sets: frames with their sounds, on disk."""
