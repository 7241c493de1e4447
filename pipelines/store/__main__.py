"""python -m pipelines.store ls | show KEY | gc | verify"""

import sys

from pipelines.store.command_line import main

sys.exit(main())
