"""``python -m scalerl``."""

import sys

from scalerl._command import main

sys.exit(main())
