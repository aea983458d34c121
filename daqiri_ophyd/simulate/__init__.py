"""Packets of simulated instruments, and their frames."""

from ._described import DescribedDetector
from ._ecpri import Ecpri
from ._instrument import Instrument
from ._jungfrau import Jungfrau
from ._packet_format import PacketField, PacketFormat, PacketFormatError
from ._spead import Spead
from ._traffic import Chunk, Disturbance, Traffic
from ._vita49 import Vita49

__all__ = ["INSTRUMENTS", "Chunk", "DescribedDetector", "Disturbance", "Ecpri", "Instrument"]
__all__ += ["Jungfrau", "PacketField", "PacketFormat", "PacketFormatError", "Spead", "Traffic"]
__all__ += ["Vita49"]

INSTRUMENTS: dict[str, Instrument] = {
    each.name: each
    for each in (Jungfrau(modules=1), Jungfrau(modules=4), Spead(), Vita49(), Ecpri())
}
"""Instruments by name; each name is also that of a profile."""
