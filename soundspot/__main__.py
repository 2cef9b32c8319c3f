"""`python -m soundspot` is the command `soundspot`."""

import sys

from soundspot.cli import main

sys.exit(main())
