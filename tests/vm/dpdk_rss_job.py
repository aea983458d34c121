"""In the guest: the C++ tests of RSS on two network cards that are connected."""

import json
import os
import subprocess
import sys
from pathlib import Path

from guest_cards import SUITE, bind, cards, reserve_hugepages


def main() -> None:
    found = cards()
    for card in found:
        bind(card, "vfio-pci")
    reserve_hugepages(200)
    told = subprocess.run(
        [SUITE, "-#", "[#test_dpdk_rss]"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"DAQIRI_TEST_DPDK": " ".join(found)},
    )
    Path(sys.argv[1]).write_text(json.dumps({"suite": told.stdout + told.stderr}))


if __name__ == "__main__":
    main()
