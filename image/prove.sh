#!/bin/sh
# Proves without Docker what must hold of the image: the program that `make setup` installed starts on a read-only root,
# as user 10001 without capabilities, and only /tmp is writable. Then Spark runs a cycle there.
#
#   image/prove.sh              the proof
#   image/prove.sh COMMAND...   a command of your own in the same sandbox
#
# The root is a tmpfs with read-only bind mounts of the system, of Python and of this checkout, in a mount namespace that
# ends with the program. Only the empty folder .trimtab/sandbox remains. It needs root for the mounts and to change the user.
set -eu
checkout=$(cd "$(dirname "$0")/.." && pwd)
python=$checkout/.venv/bin/python
if [ "${1:-}" != --inside ]; then
  [ "$(id -u)" = 0 ] || { echo "prove: needs root, for mounts and to change the user" >&2; exit 1; }
  exec unshare --mount --pid --fork --kill-child --propagation private sh "$0" --inside "$@"
fi
shift

root=$checkout/.trimtab/sandbox
mkdir -p "$root"
base=$("$python" -c 'import sys; print(sys.base_prefix)')
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir "$root/tmp" "$root/proc" "$root/dev"
for path in /usr /bin /sbin /lib /lib64 /etc "$base" "$checkout"; do
  if [ -L "$path" ]; then
    cp -P "$path" "$root$path"
  elif [ -d "$path" ]; then
    mkdir -p "$root$path"
    mount --bind "$path" "$root$path"
    mount -o remount,bind,ro "$root$path"
  fi
done
{ cat /etc/passwd; sed -n "s/^echo '\(trimtab:.*\)' >>\/etc\/passwd$/\1/p" "$checkout/image/base.sh"; } >"$root/passwd"
mount --bind "$root/passwd" "$root/etc/passwd"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -o remount,bind,ro "$root/etc/passwd"
mount -o remount,ro "$root"

inside() {
  chroot "$root" setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all \
    env -i PATH="$checkout/.venv/bin:/usr/bin:/bin" HOME=/tmp LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 "$@"
}

[ $# -eq 0 ] || { inside "$@"; exit; }
[ "$(inside id -un)" = trimtab ] || { echo "prove: user 10001 has no name, and Java asks for it" >&2; exit 1; }
for path in / /etc "$checkout" "$checkout/.venv"; do
  ! inside touch "$path/written" 2>/dev/null || { echo "prove: $path is writable" >&2; exit 1; }
done
inside trimtab --version
inside python "$checkout/image/warm.py"
echo "prove: it starts as user 10001 on a read-only root, and Spark runs with /tmp alone"
