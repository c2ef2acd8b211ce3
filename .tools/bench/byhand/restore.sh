#!/bin/sh
# The shortest way from a survivor's database: a new cluster of what lies in it.
# m1, m2 and m3 are hosts, each with its data directory DIR/NAME and its
# settings of etcd DIR/NAME.env; cp between them stands for scp. SURVIVOR,
# CLUSTER (for --initial-cluster) and ENDPOINTS are given.
set -eu
cd "$DIR"

rebuild() ( # on one host
  . "./$1.env"
  db=$SURVIVOR.old/member/snap/db
  if [ "$1" != "$SURVIVOR" ]; then
    cp "$db" "$1.db"
    db=$1.db
  fi
  etcdutl snapshot restore "$db" --skip-hash-check --name "$1" --data-dir "$DIR/$1" \
    --initial-cluster "$CLUSTER" --initial-advertise-peer-urls "$ETCD_INITIAL_ADVERTISE_PEER_URLS"
)

start() { # on one host, in the background
  set -a
  . "./$1.env"
  exec env ETCD_INITIAL_CLUSTER="$CLUSTER" etcd --data-dir "$DIR/$1"
}

for m in m1 m2 m3; do
  [ ! -e "$m" ] || mv "$m" "$m.old"
done
all=
for m in m1 m2 m3; do
  rebuild "$m" >"$m.restore.log" 2>&1 &
  all="$all $!"
done
for one in $all; do
  wait "$one"
done
for m in m1 m2 m3; do
  start "$m" >"$m.etcd.log" 2>&1 &
done
export ETCDCTL_ENDPOINTS="$ENDPOINTS"
until etcdctl endpoint health >/dev/null 2>&1; do
  sleep 0.1
done
