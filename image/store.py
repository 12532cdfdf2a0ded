"""Rewrite jars without compression, because the image's layer compresses them together to two thirds of the size.

python store.py JAR...
"""

import os
import sys
import zipfile

for path in sys.argv[1:]:
    new = f"{path}.new"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as stored:
        for entry in old.infolist():
            kept = zipfile.ZipInfo(entry.filename, entry.date_time)
            kept.external_attr = entry.external_attr
            stored.writestr(kept, old.read(entry))
    os.replace(new, path)  # noqa: PTH105  (no Path object is needed)
