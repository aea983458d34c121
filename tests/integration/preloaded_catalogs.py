"""What each preloaded process would compute anew for its first catalog; importing it is enough."""

import tempfile
from pathlib import Path

from quick_catalogs import collect_cycles_seldom, keep_what_catalogs_share
from tiled.server.settings import get_settings

from daqiri_ophyd.catalog._server import _build_app

keep_what_catalogs_share()
with tempfile.TemporaryDirectory() as _folder:
    _build_app(Path(_folder), [], "key")
get_settings.cache_clear()  # of this catalog, and of the environment now
collect_cycles_seldom()
