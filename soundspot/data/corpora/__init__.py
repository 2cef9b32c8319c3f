"""Raw corpora to pair sets, one file per corpus.

A new corpus is one new file with a `prepare(source, out, ...) -> Summary`, and a command in
cli/prepare.py.
"""
