#!/bin/sh
# Has Spark run a cycle, the first proof that the image works, and keeps the classes that it loaded in an archive, which
# each later JVM maps into memory. SPARK_SUBMIT_OPTS names it to all of them (Dockerfile). One that does not fit, after a
# change of Java or of Spark's files, is ignored.
set -eu
archive=$(echo "$SPARK_SUBMIT_OPTS" | sed -n 's/.*-XX:SharedArchiveFile=\([^ ]*\).*/\1/p')
mkdir -p "$(dirname "$archive")"
SPARK_SUBMIT_OPTS="-XX:+RecordDynamicDumpInfo -Xlog:cds=off -Xlog:cds+dynamic=off" \
  python3 "$(dirname "$0")/warm.py" /tmp/warm "$archive"
[ -s "$archive" ] || { echo "warm: Spark's JVM wrote no archive of its classes" >&2; exit 1; }
chmod 644 "$archive"
rm -rf /tmp/* "$HOME/.cache"
