"""Files and settings that know nothing of sound or pictures."""
