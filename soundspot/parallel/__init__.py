"""The processes that share the work."""
