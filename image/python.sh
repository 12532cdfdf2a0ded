#!/bin/sh
# Makes /opt/trimtab: a virtual environment with the program and what it needs at run time, and neither pip nor compilers.
# Needs the checkout in /src. Everything from an index is compared with its hash.
#   python.sh LOCK      LOCK: run, or slim for the variant without Java: a file of requirements/
set -eu
lock=$1
here=$(dirname "$0")
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null

python3 -m venv /tools
export PIP_CACHE_DIR=/var/cache/pip  # the Dockerfile keeps it from one build to the next
pip() { /tools/bin/python -m pip --disable-pip-version-check --quiet "$@"; }
pip install --require-hashes -r /src/requirements/build.txt
pip wheel --wheel-dir /wheels --no-build-isolation --no-deps --require-hashes -r "/src/requirements/$lock.txt"
pip wheel --wheel-dir /wheels --no-build-isolation --no-deps /src

python3 -m venv --without-pip /opt/trimtab
pip --python /opt/trimtab/bin/python install --no-index --no-deps --no-compile /wheels/*.whl
rm -rf /wheels

# What the program never loads: unused.txt says of each why.
cd /opt/trimtab/lib/python3.*/site-packages
sed 's/ *#.*//; /^$/d' "$here/unused.txt" | while read -r pattern; do
  case $lock-$pattern in slim-pyspark/*) continue ;; esac  # `pyspark-client` has no such parts
  # shellcheck disable=SC2086  # the pattern is to be expanded
  set -- $pattern
  [ -e "$1" ] || { echo "unused.txt: nothing is called $pattern" >&2; exit 1; }
  rm -rf "$@"
done

[ ! -d pyspark/jars ] || python3 "$here/store.py" pyspark/jars/*.jar

# Bytecode without times, and one whole second for all files: the archive of Spark's classes knows each jar by its time.
/opt/trimtab/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/trimtab/lib
find /opt/trimtab -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
