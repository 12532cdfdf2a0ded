#!/bin/sh
# Makes the archive of Spark's classes in $TRIMTAB_CACHE, with a Spark that becomes warm: the first proof that the image works.
set -eu
trimtab warm
rm -rf /tmp/* "$HOME/.cache"
