#!/bin/sh
# By the book: a survivor becomes a cluster of one with all that it has, then the
# others are added anew, one after the other, as learners that are promoted. m1, m2
# and m3 are hosts, each with its data directory DIR/NAME and its settings of etcd
# DIR/NAME.env. SURVIVOR and ENDPOINTS are given.
set -eu
cd "$DIR"

start() { # on one host, in the background, with more settings
  set -a
  . "./$1.env"
  data=$DIR/$1
  shift
  exec env "$@" etcd --data-dir "$data"
}

setting() ( # of one host
  . "./$1.env"
  eval "echo \$$2"
)

ETCDCTL_ENDPOINTS=$(setting "$SURVIVOR" ETCD_ADVERTISE_CLIENT_URLS)
export ETCDCTL_ENDPOINTS
cluster=$SURVIVOR=$(setting "$SURVIVOR" ETCD_INITIAL_ADVERTISE_PEER_URLS)
start "$SURVIVOR" ETCD_FORCE_NEW_CLUSTER=true >"$SURVIVOR.etcd.log" 2>&1 &
until etcdctl endpoint health >/dev/null 2>&1; do
  sleep 0.1
done
for m in m1 m2 m3; do
  [ "$m" != "$SURVIVOR" ] || continue
  [ ! -e "$m" ] || mv "$m" "$m.old"
  peer=$(setting "$m" ETCD_INITIAL_ADVERTISE_PEER_URLS)
  cluster=$cluster,$m=$peer
  # It is refused until the last one has been connected for five seconds.
  # One whose answer came too late was added all the same.
  until etcdctl member add "$m" --learner --peer-urls "$peer" >/dev/null 2>&1 || etcdctl member list | grep -q "$peer"; do
    sleep 0.1
  done
  id=$(etcdctl member list | sed -n "s|^\([0-9a-f]*\),.*$peer.*|\1|p")
  start "$m" ETCD_INITIAL_CLUSTER="$cluster" ETCD_INITIAL_CLUSTER_STATE=existing >"$m.etcd.log" 2>&1 &
  until etcdctl member promote "$id" >/dev/null 2>&1; do
    sleep 0.1
  done
done
ETCDCTL_ENDPOINTS=$ENDPOINTS
until etcdctl endpoint health >/dev/null 2>&1; do
  sleep 0.1
done
