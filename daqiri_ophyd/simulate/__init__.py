"""Packets of simulated instruments, and their frames."""

from ._described import DescribedDetector
from ._ecpri import Ecpri
from ._eiger import Eiger
from ._format_config import configuration_text
from ._frame_layout import FrameLayout, ModuleLayout, ModulePosition
from ._gige_vision import GigeVision
from ._instrument import Instrument
from ._jungfrau import Jungfrau
from ._mythen import Mythen
from ._packet_format import PacketField, PacketFormat, PacketFormatError
from ._pixel_bytes import pixel_bits, pixel_bytes, pixel_dtype
from ._psi_detector import PsiDetector
from ._spead import Spead
from ._traffic import Chunk, Disturbance, Traffic
from ._vita49 import Vita49

__all__ = ["INSTRUMENTS", "Chunk", "DescribedDetector", "Disturbance", "Ecpri", "Eiger"]
__all__ += ["FrameLayout", "GigeVision", "Instrument", "Jungfrau", "ModuleLayout"]
__all__ += ["ModulePosition", "Mythen", "PacketField", "PacketFormat"]
__all__ += ["PacketFormatError", "PsiDetector", "Spead", "Traffic", "Vita49", "configuration_text"]
__all__ += ["pixel_bits", "pixel_bytes", "pixel_dtype"]

INSTRUMENTS: dict[str, Instrument] = {
    each.name: each
    for each in (
        *(Jungfrau(modules=1), Jungfrau(modules=4), Spead(), Vita49(), Ecpri()),
        *(GigeVision("Mono8"), GigeVision("Mono12p"), Mythen()),
        *(Eiger(4), Eiger(8), Eiger(12), Eiger(16), Eiger(32)),
        *(Jungfrau(1, ports=2), Jungfrau(4, ports=2), Jungfrau(8, ports=2)),
    )
}
"""Instruments by name; each name is also that of a profile."""
