#!/bin/sh
# Makes /opt/java: a Java runtime of the modules in modules.txt, with an archive of its own classes.
set -eu
here=$(dirname "$0")
mkdir -p /usr/share/man/man1  # where Java's packages expect to write
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends binutils openjdk-25-jdk-headless >/dev/null

modules=$(sed 's/ *#.*//; /^$/d' "$here/modules.txt" | paste -sd, -)
jlink --add-modules "$modules" --strip-debug --compress zip-9 --no-header-files --no-man-pages --output /opt/java
find /opt/java -name '*.debuginfo' -delete  # Debian's symbols of the JVM, 740 MB, which jlink copies
/opt/java/bin/java -Xshare:dump >/dev/null  # jlink makes none, and the archive of Spark's classes builds on it
