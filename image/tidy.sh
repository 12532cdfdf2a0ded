#!/bin/sh
# Removes lists, caches, logs and manual pages that installing left behind. Licences stay.
set -eu
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/cache/ldconfig/* /var/log/* /tmp/* "$HOME/.cache"
rm -rf /usr/share/man/* /usr/share/locale/* /usr/share/info/*
find /usr/share/doc -type f ! -name copyright -delete
find /usr/share/doc -type d -empty -delete
