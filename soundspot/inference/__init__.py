"""From a frame and its sound to a map."""
