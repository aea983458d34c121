"""``python -m daqiri_ophyd.cli``: the command without the console script."""

from . import main

if __name__ == "__main__":
    main()
