"""Files, settings and messages: nothing here knows about sound or pictures."""
