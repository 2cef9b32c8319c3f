"""Reports of an evaluation: tables, charts, a page."""
