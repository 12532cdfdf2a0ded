"""A folder that both Arrow and Spark reach: a path of this machine, or a URI such as ``s3a://bucket/folder``.

Everything that reads or writes the history uses `pyarrow.fs`. Only regular files count: a pipe would block its reader,
and a broken link has no content.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

Place = str | Path
"""How users name a folder: a path or a URI."""
_HADOOP = {"s3a": "s3", "s3n": "s3"}
"""Schemes of Hadoop that Arrow knows under another name."""
_OBJECT_STORES = {"s3", "gcs", "abfs"}
"""Arrow's names of file systems whose files are objects."""


@dataclass(frozen=True)
class Location:
    """A folder or file. path: its path in `filesystem`. prefix: what a URI for Spark has before it, or empty."""

    filesystem: fs.FileSystem = field(compare=False, repr=False)
    path: str
    prefix: str = ""

    @classmethod
    def of(cls, place: Place) -> Location:
        """The location that `place` names. ``AWS_ENDPOINT_URL`` names an S3 server other than Amazon's.

        Raises `ValueError` for a URI that Arrow can't open, or that has options, which Spark would not understand.
        """
        text = str(place)
        scheme, separator, rest = text.partition("://")
        if not separator or scheme == "file":
            return cls(fs.LocalFileSystem(), os.path.abspath(urlsplit(text).path if separator else text))  # noqa: PTH100
        if "?" in rest:
            raise ValueError(f"{scheme}:// takes no options; name the server in the environment as AWS_ENDPOINT_URL")
        try:
            filesystem, path = fs.FileSystem.from_uri(f"{_HADOOP.get(scheme, scheme)}://{rest}")
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{scheme}:// can't be opened ({error}); give a folder, or an s3a:// URI") from error
        start = f"{scheme}://{urlsplit(text).netloc}"
        return cls(filesystem, path.rstrip("/"), start if scheme not in _HADOOP and scheme != "s3" else f"{scheme}://")

    def __truediv__(self, name: str) -> Location:
        return Location(self.filesystem, f"{self.path}/{name}", self.prefix)

    def __str__(self) -> str:
        """The path or URI, in the form that Spark reads."""
        return f"{self.prefix}{self.path}"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The folder it is in."""
        return Location(self.filesystem, self.path.rpartition("/")[0], self.prefix)

    @cached_property
    def local(self) -> bool:
        """Whether it is on a file system of this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def renames(self) -> bool:
        """Whether a file can be renamed atomically. In object stores it can't; there, only complete objects appear."""
        return self.filesystem.type_name not in _OBJECT_STORES

    def exists(self) -> bool:
        """Whether there is a regular file or a folder."""
        return self._info().type in {fs.FileType.File, fs.FileType.Directory}

    def size(self) -> int:
        """Bytes of the file; 0 when it does not exist any more."""
        return self._info().size or 0

    def files(self, *, recursive: bool = False) -> dict[Location, int]:
        """The regular files in this folder, sorted by name, with sizes in bytes; none if the folder does not exist."""
        found = self._listed(fs.FileType.File, recursive=recursive)
        return {Location(self.filesystem, info.path, self.prefix): info.size or 0 for info in found}

    def folders(self) -> list[Location]:
        """The folders in this one, sorted by name; none if it does not exist."""
        found = self._listed(fs.FileType.Directory, recursive=False)
        return [Location(self.filesystem, info.path, self.prefix) for info in found]

    def make(self) -> None:
        """Create the folder. Raises `OSError`."""
        self.filesystem.create_dir(self.path, recursive=True)

    def move(self, target: Location) -> None:
        """Rename the file to `target`, and replace a file of that name. Raises `OSError`.

        HDFS can't replace a file by a rename, so there `target` does not exist for a moment.
        """
        try:
            self.filesystem.move(self.path, target.path)
        except OSError:
            if self.local or not (self.exists() and target.exists()):
                raise
            target.remove()
            self.filesystem.move(self.path, target.path)

    def remove(self) -> None:
        """Remove the file, if it still exists. Raises `OSError`."""
        try:
            self.filesystem.delete_file(self.path)
        except FileNotFoundError:
            pass
        except OSError:
            if self.exists():
                raise

    def _info(self) -> fs.FileInfo:
        return self.filesystem.get_file_info(self.path)

    def _listed(self, kind: fs.FileType, *, recursive: bool) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=recursive)
        found = [info for info in self.filesystem.get_file_info(selector) if info.type == kind]
        return sorted(found, key=lambda info: info.path)
