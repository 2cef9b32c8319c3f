"""Media files to arrays, and back."""
