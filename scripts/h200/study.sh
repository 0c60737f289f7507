#!/usr/bin/env bash
# Studies on one GPU, one after the other; a study that was stopped goes on. What belongs into docs/results/ is packed.
#   scripts/h200/study.sh FOLDER STUDY...     STUDY: a shipped one or a file; leaves FOLDER/NAME/ and FOLDER/NAME.tar.gz
#   JOBS=1                                    runs at a time; more than one only where the budget is not device time. They share the
#                                             GPU through MPS: without it they take turns, which was no faster than one after the other
#   ONLY="VARIANT ..."                        these alone
source "$(dirname "$0")/environment.sh"
folder=${1:?a folder for the studies}; shift
jobs=${JOBS:-1}
mkdir -p "$folder"
# Relative paths from here on: a study's pages name the folders they were given.
binary=$(realpath "$scalerl"); root=$PWD
cd "$folder"
if [ "$jobs" -gt 1 ]; then share_gpu; fi
only=(); for variant in ${ONLY:-}; do only+=(--only "$variant"); done
for study in "$@"; do
  [ -f "$root/$study" ] && study=$root/$study
  name=$(basename "$study" .toml)
  resume=(); [ -d "$name" ] && resume=(--resume)
  "$binary" study "$study" --out "$name" --jobs "$jobs" "${resume[@]}" "${only[@]}" || echo "$name: exit code $?"
  files=(); for file in points.csv runs.jsonl study.csv study.json table.md curves.png slopes.png; do
    [ -f "$name/$file" ] && files+=("$name/$file")
  done
  tar -czf "$name.tar.gz" "${files[@]}"
done
