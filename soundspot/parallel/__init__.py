"""Work on many items at once: in processes of this machine, or on a Ray cluster."""
