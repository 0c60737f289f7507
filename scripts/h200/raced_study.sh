#!/usr/bin/env bash
# One raced study, killed in the middle and resumed, then run on without the race, so that what the race lost is known.
#   scripts/h200/raced_study.sh FOLDER [STUDY.toml]     leaves FOLDER/NAME/, FOLDER/NAME-raced/ (the small files as the race left
#                                                       them), FOLDER/NAME.tar.gz with both, and prints the times of each part
#   JOBS=1          runs at a time; more than one share the GPU through MPS
#   KILL_AFTER=1    decisions of the race after which it is killed (SIGKILL to the study and to its runs)
#   KILL_WITHIN=240 seconds after which it is killed in any case
source "$(dirname "$0")/environment.sh"
folder=${1:?a folder for the study}
study=$(realpath "${2:-scripts/h200/raced_study.toml}")
jobs=${JOBS:-1}
name=$(basename "$study" .toml)
binary=$(realpath "$scalerl")
mkdir -p "$folder"
cd "$folder"
if [ "$jobs" -gt 1 ]; then share_gpu; fi
# Its first line is the start.
decisions() { if [ -f "$name/race.jsonl" ]; then echo $(($(wc -l < "$name/race.jsonl") - 1)); else echo 0; fi; }
part() { echo "== $1: ${SECONDS} s since the start"; }

part "race"
"$binary" study "$study" --out "$name" --race --jobs "$jobs" > "$name-killed.txt" 2>&1 &
race=$!
until [ "$(decisions)" -ge "${KILL_AFTER:-1}" ] || [ "$SECONDS" -ge "${KILL_WITHIN:-240}" ]; do
  if ! kill -0 "$race" 2> /dev/null; then cat "$name-killed.txt"; echo "the study ended before it could be killed" >&2; exit 1; fi
  sleep 1
done
# The study first, so that it starts nothing anew; its runs have groups of their own.
kill -STOP "$race"
mapfile -t runs < <(pgrep -P "$race" || true)
kill -KILL "$race" "${runs[@]}"
wait "$race" || true
cp "$name/race.jsonl" "$name-at-kill.jsonl" 2> /dev/null || true
part "killed after $(decisions) decisions, with ${#runs[@]} runs under way"

"$binary" study "$study" --out "$name" --race --resume --jobs "$jobs" || echo "$name: exit code $?"
part "raced to the end, $(decisions) decisions"
# A kill may take back nothing that was decided.
if [ -f "$name-at-kill.jsonl" ]; then
  head -c "$(stat -c %s "$name-at-kill.jsonl")" "$name/race.jsonl" | cmp - "$name-at-kill.jsonl"
fi
small=(points.csv runs.jsonl race.jsonl study.csv study.json table.md curves.png slopes.png)
mkdir -p "$name-raced"
for file in "${small[@]}"; do [ ! -f "$name/$file" ] || cp "$name/$file" "$name-raced/"; done

"$binary" study "$study" --out "$name" --resume --jobs "$jobs" || echo "$name: exit code $?"
part "all to their end"
"$binary" replay "$name" || true
files=("$name-raced"); for file in "${small[@]}"; do [ ! -f "$name/$file" ] || files+=("$name/$file"); done
tar -czf "$name.tar.gz" "${files[@]}"
part "packed"
