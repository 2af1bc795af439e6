#!/usr/bin/env bash
# Saves the comparison's state as one file without this machine's paths, or restores it from there.
#   keep.sh save STATE FILE.tar.xz     keep.sh restore FILE.tar.xz STATE     (then run.sh STATE KERNELBENCH)
set -eu
here=$(dirname "$(realpath "$0")")
paths() { sed "s#$1#$2#g"; }
if [ "$1" = save ]; then
  state=$(realpath "$2") part=$(mktemp -d)
  mkdir "$part/state"
  for store in "$state"/*.db; do
    sqlite3 "$store" .dump | paths "$state" @STATE@ | paths "$here" @COMPARISON@ >"$part/state/$(basename "$store" .db).sql"
  done
  cp -r "$state/mail" "$part/state"
  mkdir "$part/state/queue" && cp -r "$state"/queue/{requests,results} "$part/state/queue"
  rm -f "$part"/state/mail/*.lock "$part"/state/mail/*.part
  tar --sort=name --owner=0 --group=0 -cJf "$3" -C "$part/state" .
  rm -r "$part"
else
  [ ! -e "$3" ] || { echo "$3 exists; name a new folder for the state" >&2; exit 1; }
  mkdir -p "$3"
  state=$(realpath "$3")
  tar xJf "$2" -C "$state"
  for dump in "$state"/*.sql; do
    paths @STATE@ "$state" <"$dump" | paths @COMPARISON@ "$here" | sqlite3 "${dump%.sql}.db"
    rm "$dump"
  done
fi
