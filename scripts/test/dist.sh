#!/usr/bin/env bash
# What make dist has built, as a stranger gets it: installed with a clean environment, used, moved, removed.
#   LIBTORCH_CACHE   a cache folder that holds scalerl/libtorch-2.11.0 (default: the user's)
set -euo pipefail
cd "$(dirname "$0")/../.."
tree=$PWD
archive=$(ls dist/scalerl-*-linux-x86_64.tar.gz)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=${LIBTORCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}
mkdir "$work/home"
passed=0

# Nothing of this shell but where the system's programs are; $1 is the cache.
clean() {
  local with=$1; shift
  env -i HOME="$work/home" PATH="$(dirname "$(command -v python3)"):/usr/bin:/bin" XDG_CACHE_HOME="$with" OMP_WAIT_POLICY=passive "$@"
}
ok() { passed=$((passed + 1)); echo "ok: $1"; }
refused() { # what, exit code, words, command...
  local what=$1 code=$2 words=$3 got=0; shift 3
  "$@" >"$work/said" 2>&1 || got=$?
  if [ "$got" != "$code" ] || ! grep -q -- "$words" "$work/said"; then
    echo "FAILED: $what: exit code $got, not $code, or it does not say \`$words\`:"; cat "$work/said"; exit 1
  fi
  ok "$what"
}

# --- the installer
cp "$archive" "$archive.sha256" dist/install.sh "$work/"
name=$(basename "$archive")
prefix=$work/prefix
clean "$cache" sh "$work/install.sh" --prefix "$prefix" "$work/$name"
[ "$("$prefix/bin/scalerl" --version)" = "$("$prefix/lib/scalerl/bin/scalerl" --version)" ]
ok "installs into a folder of one's own"
clean "$cache" sh "$work/install.sh" --prefix "$prefix" "$work/$name" >/dev/null
ok "installs again over itself"
mkdir -p "$work/taken/bin"; echo mine >"$work/taken/bin/scalerl"
refused "does not overwrite a file that it did not install" 2 "was not installed by this script" \
  clean "$cache" sh "$work/install.sh" --prefix "$work/taken" "$work/$name"
[ "$(cat "$work/taken/bin/scalerl")" = mine ] && [ ! -e "$work/taken/lib/scalerl" ]
cp "$work/$name" "$work/broken.tar.gz"; printf x >>"$work/broken.tar.gz"; cp "$work/$name.sha256" "$work/broken.tar.gz.sha256"
refused "refuses an archive that is not what its sum says" 2 "is not what" \
  clean "$cache" sh "$work/install.sh" --prefix "$work/other" "$work/broken.tar.gz"
[ ! -e "$work/other/bin/scalerl" ]
rm "$work/broken.tar.gz.sha256"
refused "refuses an archive without a sum" 2 "cannot be checked" \
  clean "$cache" sh "$work/install.sh" --prefix "$work/other" "$work/broken.tar.gz"

# --- the programs, before and after the prefix is moved
use() {
  clean "$work/empty" "$1/bin/scalerl" fit "$tree/examples/curves/scalerl-8b.csv" --until 8000 --at 16000 | grep -q "ceiling"
  ok "fits without libtorch ($2)"
  refused "says that libtorch is missing ($2)" 2 "libtorch is missing" clean "$work/empty" "$1/bin/scalerl" train quickstart
  refused "a misspelt command is none that needs libtorch ($2)" 2 "unrecognized subcommand 'fti'" clean "$work/empty" "$1/bin/scalerl" fti log.csv
  refused "the nearest one may need libtorch ($2)" 2 "'train'" clean "$work/empty" "$1/bin/scalerl" trian quickstart
  clean "$cache" "$1/bin/scalerl" --help | grep -q "^  train"
  ok "lists every command where libtorch is found ($2)"
  clean "$cache" "$1/bin/scalerl" doctor >"$work/said" || { cat "$work/said"; exit 1; }
  [ "$(grep -c "holds: error" "$work/said")" -ge 2 ]
  ok "doctor proves a product and an attention ($2)"
  (cd "$work" && clean "$cache" "$1/bin/scalerl" train quickstart --set budget.steps=2 --set output.folder="$work/runs-$2") >"$work/said" 2>&1 ||
    { cat "$work/said"; exit 1; }
  ls "$work/runs-$2"/*/report.html >/dev/null
  ok "trains two steps of quickstart ($2)"
  clean "$work/empty" "$1/bin/scalerl" export "$work/runs-$2"/quickstart-*/ --to jsonl | grep -q " rows, "
  ok "exports that run without libtorch ($2)"
  # Long enough for a busy machine to open it and to listen for the signal.
  clean "$work/empty" timeout --preserve-status --signal INT 15 "$1/bin/scalerl" watch "$work/runs-$2" --address 127.0.0.1:0 >"$work/said"
  grep -q "^page  *http://127.0.0.1:" "$work/said"
  ok "opens its page without libtorch ($2)"
}
use "$prefix" installed
mv "$prefix" "$work/moved"
use "$work/moved" moved

# --- gone again
clean "$cache" sh "$work/install.sh" --uninstall --prefix "$work/moved" >/dev/null
[ ! -e "$work/moved/bin/scalerl" ] && [ ! -e "$work/moved/lib/scalerl" ]
ok "uninstalls"
refused "does not uninstall twice" 2 "nothing was installed" clean "$cache" sh "$work/install.sh" --uninstall --prefix "$work/moved"

# --- the wheel, with this machine's libtorch in place of pip's torch
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-deps --no-index dist/scalerl_train-*.whl
clean "$work/empty" "$work/venv/bin/scalerl" fit "$tree/examples/curves/scalerl-8b.csv" | grep -q "ceiling"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
libtorch=$(clean "$cache" "$work/venv/bin/scalerl" setup --find)
for part in torch nvidia; do ln -s "$libtorch/$part" "$site/$part"; done
clean "$work/empty" "$work/venv/bin/scalerl-train" doctor | grep -q "$site/torch\|$libtorch/torch"
ok "the wheel's command finds the torch of its environment"
echo "$passed checks of the archive, the installer and the wheel passed"
