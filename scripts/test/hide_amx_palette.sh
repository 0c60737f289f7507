#!/bin/sh
# Runs a command on a CPU with AMX as if its virtual machine hid the tile palette, for instance
#   scripts/test/hide_amx_palette.sh target/debug/scalerl bench head --dtype bf16
# Plain PyTorch 2.11 dies of SIGILL under it (exit 132); scalerl must not. Needs a CPU with AMX and CPUID
# faulting (Intel, the flags amx_tile and cpuid_fault); says so and exits 77 elsewhere.
set -eu
for flag in amx_tile cpuid_fault; do
    grep -qw "$flag" /proc/cpuinfo || { echo "this CPU does not show $flag: nothing to hide" >&2; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc -shared -fPIC -O1 -o "$folder/hide.so" "$(dirname "$0")/hide_amx_palette.c"
LD_PRELOAD="$folder/hide.so" "$@"
