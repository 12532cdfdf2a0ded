#!/usr/bin/env bash
# Builds the oracle into the folder given as the only argument: the class path from Maven, the classes with javac.
# Called by the Makefile. The first run downloads about 275 MB.
set -euo pipefail

say() { printf '%s\n' "oracle: $*"; }
fail() { printf '%s\n' "oracle: $*" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
target=${1:?the folder to build into}
java_home=${JAVA_HOME:-}
javac=${java_home:+$java_home/bin/}javac
purpose="the oracle runs Pulsar's own Java classes, which \`make test\` compares with ours"

command -v mvn >/dev/null || fail "mvn not found; $purpose: install Maven 3.6 or newer (Debian: maven)"
command -v "$javac" >/dev/null || fail "$javac not found; $purpose: install a JDK 17 or newer (Debian: openjdk-17-jdk-headless)"
release=$("$javac" -version 2>&1) || fail "$javac does not run: ${release%%$'\n'*}"
[[ $release =~ ^javac\ ([0-9]+) && ${BASH_REMATCH[1]} -ge 17 ]] ||
  fail "$javac is ${release%%$'\n'*}, and JDK 17 or newer is needed: install one and point JAVA_HOME to it"

mkdir -p "$target"
target=$(cd "$target" && pwd)       # Maven takes relative paths from the pom's folder
log=$(mktemp)
trap 'rm -f "$log"' EXIT
begun=$SECONDS

# Shows a line every ten seconds until the command is done; its output only when it fails.
quietly() {
  local what=$1
  shift
  "$@" >"$log" 2>&1 &
  local pid=$! told=$SECONDS
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    ((SECONDS - told >= 10)) && { told=$SECONDS; say "$what ($((SECONDS - begun)) s)"; }
  done
  wait "$pid" || { tail -n 40 "$log" >&2; fail "$what failed, see above"; }
}

quietly "Pulsar's classes from Maven (275 MB the first time)" \
  mvn -B -q -f "$here/pom.xml" dependency:build-classpath -DincludeScope=runtime -Dmdep.outputFile="$target/classpath"
rm -rf "$target/classes"
quietly "compiling" "$javac" --release 17 -nowarn -encoding UTF-8 -d "$target/classes" -cp "$(cat "$target/classpath")" \
  "$here"/src/main/java/oracle/*.java
cat >"$target/run" <<'RUN'
#!/bin/sh
# The oracle; with --bench as the first argument: the benchmark.
here=$(cd "$(dirname "$0")" && pwd)
main=Oracle
[ "${1:-}" = --bench ] && { main=Bench; shift; }
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" ${ORACLE_JAVA_OPTS:--Xmx1g -XX:+UseSerialGC} -Dfile.encoding=UTF-8 \
  -cp "$here/classes:$(cat "$here/classpath")" "oracle.$main" "$@"
RUN
chmod +x "$target/run"
say "ready in $target after $((SECONDS - begun)) s"
