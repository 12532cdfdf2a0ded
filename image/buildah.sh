#!/bin/sh
# Builds the image without Docker and without a registry. mmdebstrap makes the base of Debian's packages, once, and
# buildah executes the Dockerfile. Needs root, and the packages buildah and mmdebstrap. The images are kept in
# .trimtab/images, a storage of its own: `buildah --root .trimtab/images images`.
#
#   image/buildah.sh --tag localhost/trimtab:0.1.0 [ARGUMENT...]     arguments of `buildah build`
set -eu
cd "$(dirname "$0")/.."
base=localhost/$(sed -n 's/^ARG BASE=//p' Dockerfile)
suite=${base#*:} suite=${suite%-slim}
buildah() { command buildah --root "$PWD/.trimtab/images" --runroot "$PWD/.trimtab/run" "$@"; }

if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
  container=$(buildah from scratch)
  mmdebstrap --variant=minbase "$suite" "$(buildah mount "$container")"
  buildah commit --rm "$container" "$base"
fi
buildah build --isolation chroot --layers --format docker --pull=never --build-arg BASE="$base" "$@" .
