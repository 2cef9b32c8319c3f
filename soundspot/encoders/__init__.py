"""The frozen encoders, what they see and hear, and where their weights come from."""
