#!/usr/bin/env bash
# A model for benches that outlast a day: `--model "exec[NAME]:benchmarks/comparison/ask.sh FOLDER"`.
# A prompt becomes FOLDER/DIGEST.NUMBER.prompt, and the answer is FOLDER/DIGEST.NUMBER.reply, moved there whole by a
# person or a program. The same prompt, asked again, gets the next number, so samples differ. A question whose
# process was stopped is asked under its old number, so no reply is lost. Waits up to SECONDS (3500).
set -eu
folder=$1 seconds=${2:-3500}
mkdir -p "$folder"
part=$folder/$$.part
cat >"$part"
name=$folder/$(sha256sum "$part" | cut -c1-16)
number=1
while :; do
  exec 9>"$name.$number.lock"
  [ ! -e "$name.$number.taken" ] && flock -n 9 && [ ! -e "$name.$number.taken" ] && break
  number=$((number + 1))
done
name=$name.$number
mv "$part" "$name.prompt"
for _ in $(seq $((seconds * 2))); do
  if [ -e "$name.reply" ]; then
    touch "$name.taken"
    exec cat "$name.reply"
  fi
  sleep 0.5
done
echo "no reply to $name.prompt in $seconds s" >&2
exit 1
