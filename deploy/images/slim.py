"""Remove what no image needs from the virtual environment that runs this: debug symbols, tests, sources in C, locales.

The locales of Babel that the languages of the installed pages read are kept, so a new catalogue needs no change here.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SITE = Path(sysconfig.get_path("platlib"))
UNUSED = (
    *("**/tests", "**/testing"),
    *("**/*.c", "**/*.cpp", "**/*.h", "**/*.hpp", "**/*.pxd", "**/*.pyi", "**/*.pyx"),
    *("offapi/redoc.js", "offapi/scalar.js"),  # the API reference is Swagger UI
)


def locales_read() -> set[Path]:
    """Return the files of Babel that are opened when the languages of the installed pages are loaded."""
    opened: set[Path] = set()
    if catalogues := list(SITE.rglob("catalogues")):
        from identity_common.pages.languages import Languages  # noqa: PLC0415 - only images with pages have it

        sys.addaudithook(lambda event, about: opened.add(Path(str(about[0]))) if event == "open" else None)
        for directory in catalogues:
            Languages(directory)
    return opened


unused = {path for pattern in UNUSED for path in SITE.glob(pattern)}
unused |= set(SITE.glob("babel/locale-data/*.dat")) - locales_read()
for path in unused:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)  # its directory may be gone
subprocess.run(["strip", "--strip-unneeded", *SITE.rglob("*.so")], check=True)  # noqa: S603, S607 - the image's own
