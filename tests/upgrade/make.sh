#!/bin/bash
# make.sh BINARY NAME: keeps a small cluster's data, as this binary writes it, in NAME.tar.xz beside
# this script. Run it in the commit that raises a format, with the binary from before it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(realpath "$1")
dir=$(mktemp -d)
trap '"$bin" down --dir "$dir/data" >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT
cd "$dir"
# An address that nothing else listens on: it stands in the monitor's file.
"$bin" up --dir data --minimal --mons 1 --osds 1 --size 1 --osd-bytes 600M --addr 127.54.1.1
export CEPH_CONF=$dir/data/ceph.conf
rados() { "$bin" rados -p kept "$@"; }

"$bin" ceph osd pool create kept 8
"$bin" ceph osd pool application enable kept check
"$bin" ceph config-key set kept "a value"
"$bin" ceph auth get-or-create client.kept mon 'allow r' osd 'allow r pool=kept' >/dev/null
# Objects of one block, of many, overwritten, removed; attributes, omap.
for n in 1 2 3 4 5 6 7 8; do
    printf 'object %s\n' $n | rados put "small-$n" -
done
rados rm small-8
seq 60000 | rados put large -
printf 'tail\n' >tail && rados append large tail
rados setxattr small-1 user.kept "an attribute"
for n in $(seq 200); do rados setomapval small-2 "key-$n" "value $n"; done
# An image with a snapshot, and what was written behind it.
"$bin" ceph osd pool create images 8
"$bin" ceph osd pool application enable images rbd
seq 40000 >first && "$bin" rbd import first images/image
"$bin" rbd snap create images/image@before
"$bin" rbd resize images/image --size 2M
"$bin" down --dir data

rm -rf data/run data/log
sed -i "s#$dir/data#@DIR@#g" data/ceph.conf
tar --sort=name --owner=0 --group=0 --numeric-owner -S -cJf "$here/$2.tar.xz" data
ls -l "$here/$2.tar.xz"
