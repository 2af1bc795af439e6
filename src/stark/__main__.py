"""`python -m stark`: the command where the script `stark` is not on the path."""

import sys

from stark.cli.app import main

sys.exit(main())
