"""Writes a root file system as `docker save` writes an image, for `docker load` and `kind load image-archive`."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import subprocess
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dockerfile

NAME = "localhost/trimtab"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_BLOCK = 1 << 20


def write(root: Path, stage: dockerfile.Stage, target: Path, *, epoch: int) -> Path:
    """`target`, with `root` as its only layer, and what `stage` says of user, environment and entrypoint.

    epoch: Unix time of whatever is newer, so that the same root gives the same bytes.
    """
    layer = target.with_suffix(".layer")
    plain = _pack(root, layer, epoch)
    config = _json(_config(stage, plain, epoch))
    places = f"{hashlib.sha256(config).hexdigest()}.json", f"{plain.partition(':')[2]}.tar.gz"
    manifest = _json([{"Config": places[0], "RepoTags": [tag(stage)], "Layers": [places[1]]}])
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        for place, content in (("manifest.json", manifest), (places[0], config)):
            tar.addfile(_entry(place, len(content), epoch), io.BytesIO(content))
        with layer.open("rb") as packed:
            tar.addfile(_entry(places[1], layer.stat().st_size, epoch), packed)
    layer.unlink()
    return target


def tag(stage: dockerfile.Stage) -> str:
    """Name and tag of the image."""
    return f"{NAME}:{stage.labels['org.opencontainers.image.version']}"


def size(root: Path) -> int:
    """Bytes of all files below `root`; a file with several names counts once."""
    seen = {(about.st_dev, about.st_ino): about.st_size for path in root.rglob("*") if (about := path.lstat())}
    return sum(seen.values())


def _pack(root: Path, layer: Path, epoch: int) -> str:
    """Write `root` to `layer`, compressed; the digest of what was compressed."""
    order = ("--sort=name", "--numeric-owner", f"--mtime=@{epoch}", "--clamp-mtime", "--format=gnu")
    digest = hashlib.sha256()
    with (
        subprocess.Popen(["tar", *order, "-C", str(root), "-cf", "-", "."], stdout=subprocess.PIPE) as tar,
        layer.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
    ):
        assert tar.stdout is not None
        while block := tar.stdout.read(_BLOCK):
            digest.update(block)
            packed.write(block)
    if tar.returncode:
        raise subprocess.CalledProcessError(tar.returncode, ["tar"])
    return f"sha256:{digest.hexdigest()}"


def _config(stage: dockerfile.Stage, plain: str, epoch: int) -> dict[str, Any]:
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "created": created,
        "architecture": _MACHINES[platform.machine()],
        "os": "linux",
        "config": {
            "User": stage.notes["USER"],
            "WorkingDir": stage.notes["WORKDIR"],
            "Entrypoint": dockerfile.entrypoint(stage),
            "Env": [f"{name}={value}" for name, value in stage.environment.items()],
            "Labels": stage.labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [plain]},
        "history": [{"created": created, "created_by": "Dockerfile"}],
    }


def _entry(place: str, length: int, epoch: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(place)
    entry.size, entry.mtime = length, epoch
    return entry


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
