"""The module ``daqiri`` of scripts that ``daqiri-ophyd run`` runs."""

import sys

from daqiri_ophyd import compat

# One module under both names.
sys.modules[__name__] = compat
