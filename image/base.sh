#!/bin/sh
# What every stage of the image has: Python, certificates, and the user that the program runs as.
set -eu
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates libstdc++6 python3 >/dev/null

# By hand: useradd writes the day into /etc/shadow. Java asks for the name of its user, so there must be one.
echo 'trimtab:x:10001:' >>/etc/group
echo 'trimtab:x:10001:10001:Trimtab:/tmp:/usr/sbin/nologin' >>/etc/passwd

# Bytecode that is never compared with its source holds no time, and can't be rewritten in a read-only root anyway.
find /usr/lib/python3* -name __pycache__ -prune -exec rm -rf {} +
python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3.* || true  # lib2to3 has files of Python 2

sh "$(dirname "$0")/tidy.sh"
