"""Makes `python -m stark` do the same as `stark`, for environments in which the script `stark` is not on PATH."""

import sys

from stark.cli.app import main

sys.exit(main())
