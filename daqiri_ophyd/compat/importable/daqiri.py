"""The module ``daqiri`` for scripts that ``daqiri-ophyd run`` runs."""

import sys

from daqiri_ophyd import compat

# The same module under both names.
sys.modules[__name__] = compat
