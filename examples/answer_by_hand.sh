#!/usr/bin/env bash
# A model for `stark optimize … --model "exec[NAME]:examples/answer_by_hand.sh FOLDER"`: every prompt appears as
# FOLDER/NUMBER.prompt, and the run goes on when someone (a person, another program) has moved the reply, whole, to
# FOLDER/NUMBER.reply; within an hour, after which the call has failed.
set -eu
folder=$1
mkdir -p "$folder"
name=$folder/$(date +%s%N)
cat >"$name.part"
mv "$name.part" "$name.prompt"
until [ -e "$name.reply" ]; do sleep 0.3; done
cat "$name.reply"
