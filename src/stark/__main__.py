"""`python -m stark` is the command `stark`, for environments where that script is not on PATH."""

import sys

from stark.cli.app import main

sys.exit(main())
