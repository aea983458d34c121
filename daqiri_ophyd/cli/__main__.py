"""``python -m daqiri_ophyd.cli``: the command without its console script."""

from . import main

if __name__ == "__main__":
    main()
