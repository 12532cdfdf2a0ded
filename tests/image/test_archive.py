"""The archive of an image: what `docker load` reads of it, and that the same files give the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

import archive
import dockerfile

STAGE = dockerfile.stages(Path(__file__).parents[2] / "Dockerfile")[-1]
EPOCH = 1767225600


def root(folder: Path) -> Path:
    (folder / "etc").mkdir(parents=True)
    (folder / "etc" / "name").write_text("trimtab\n")
    os.link(folder / "etc" / "name", folder / "etc" / "again")
    return folder


def test_it_says_who_runs_what_and_its_layer_is_what_it_says(tmp_path: Path) -> None:
    file = archive.write(root(tmp_path / "root"), STAGE, tmp_path / "image.tar", epoch=EPOCH)
    with tarfile.open(file) as tar:
        held = {name: tar.extractfile(name) for name in tar.getnames()}
        content = {name: member.read() for name, member in held.items() if member}
    [manifest] = json.loads(content["manifest.json"])
    config = json.loads(content[manifest["Config"]])
    assert manifest["RepoTags"] == ["localhost/trimtab:0.1.0"]
    assert config["config"]["User"] == "10001:10001"
    assert config["config"]["Entrypoint"] == ["trimtab"]
    assert manifest["Config"] == f"{hashlib.sha256(content[manifest['Config']]).hexdigest()}.json"
    [layer] = manifest["Layers"]
    (tmp_path / "layer.tar.gz").write_bytes(content[layer])
    with tarfile.open(tmp_path / "layer.tar.gz") as tar:
        assert {"./etc/name", "./etc/again"} <= set(tar.getnames())
        assert max(member.mtime for member in tar) <= EPOCH


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    made = [archive.write(root(tmp_path / name), STAGE, tmp_path / f"{name}.tar", epoch=EPOCH) for name in "ab"]
    assert made[0].read_bytes() == made[1].read_bytes()


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    folder = root(tmp_path / "root")
    assert archive.size(folder) == len("trimtab\n") + (folder / "etc").stat().st_size
