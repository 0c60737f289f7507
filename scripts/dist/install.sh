#!/bin/sh
# Installs scalerl from an archive that `make dist` has built; needs no root and no network.
#
#   sh install.sh [--prefix DIR] ARCHIVE.tar.gz     into DIR (default: ~/.local)
#   sh install.sh --uninstall [--prefix DIR]        removes what was installed there
#
# The archive goes to DIR/lib/scalerl, and DIR/bin/scalerl is a link into it. The archive's .sha256
# beside it must be there and must agree. A file of that name that this script did not put there is
# never overwritten. An older installation is replaced whole, or stays as it was.
set -eu

fail() { echo "error: $1" >&2; [ -z "${2:-}" ] || echo "hint: $2" >&2; exit 2; }

prefix=${HOME:-}/.local
archive=
action=install
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -ge 2 ] || fail "--prefix needs a folder"; prefix=$2; shift ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --uninstall) action=uninstall ;;
    -h|--help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) fail "unknown option $1" "sh install.sh --help" ;;
    *) [ -z "$archive" ] || fail "one archive, not two: $archive and $1"; archive=$1 ;;
  esac
  shift
done
[ "$prefix" != /.local ] || fail "HOME is not set" "name a folder: --prefix DIR"
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac

home=$prefix/lib/scalerl
link=$prefix/bin/scalerl
# Relative: a prefix that is moved as a whole still works.
inside=../lib/scalerl/bin/scalerl
mark=$home/.installed-by-install.sh

# A folder or link of that name is ours only with our mark in it.
if [ -e "$home" ] && [ ! -f "$mark" ]; then
  fail "$home is there and was not installed by this script" "choose another --prefix, or move it away"
fi
if [ -e "$link" ] || [ -L "$link" ]; then
  [ "$(readlink "$link" 2>/dev/null || true)" = "$inside" ] ||
    fail "$link is there and was not installed by this script" "choose another --prefix, or move it away"
fi

if [ "$action" = uninstall ]; then
  [ -f "$mark" ] || fail "nothing was installed under $prefix"
  rm -f "$link"
  rm -rf "$home"
  echo "removed $home and $link; libtorch, if it was fetched, is in ${XDG_CACHE_HOME:-~/.cache}/scalerl"
  exit 0
fi

[ -n "$archive" ] || fail "no archive was named" "sh install.sh scalerl-VERSION-linux-x86_64.tar.gz"
[ -f "$archive" ] || fail "$archive: no such file"
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "this archive is for Linux on x86-64, not $(uname -s) on $(uname -m)"
[ -f "$archive.sha256" ] || fail "$archive.sha256 is missing: the archive cannot be checked" "get it from where the archive is"
wanted=$(cut -d ' ' -f 1 "$archive.sha256")
found=$(sha256sum "$archive" | cut -d ' ' -f 1)
[ "$wanted" = "$found" ] || fail "$archive is not what $archive.sha256 says ($found, not $wanted)" "get both again"

mkdir -p "$prefix/lib" "$prefix/bin" || fail "cannot write to $prefix" "choose another --prefix"
fresh=$(mktemp -d "$prefix/lib/.scalerl-XXXXXX") || fail "cannot write to $prefix/lib" "choose another --prefix"
# Ended at any point: what was there before is back, or the new one is whole.
tidy() {
  if [ -e "$fresh.old" ]; then
    if [ -e "$home" ]; then rm -rf "$fresh.old"; else mv "$fresh.old" "$home"; fi
  fi
  rm -rf "$fresh"
}
trap tidy EXIT
trap 'exit 130' INT TERM HUP
tar -xzf "$archive" -C "$fresh" --strip-components=1 --no-same-owner
chmod 755 "$fresh"
# It must start here before it takes anyone's place: an old glibc shows now.
"$fresh/bin/scalerl" --version >/dev/null || fail "the program of $archive cannot start on this system; the reason is above"
touch "$fresh/.installed-by-install.sh"
if [ -e "$home" ]; then mv "$home" "$fresh.old"; fi
mv "$fresh" "$home" || fail "cannot write to $home" "what was there before is back"
ln -sfn "$inside" "$link"

echo "installed $("$link" --version) in $home; $link"
case :${PATH:-}: in
  *:"$prefix/bin":*) ;;
  *) echo "$prefix/bin is not in PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
echo "forecasting works now: scalerl fit LOG"
echo "for training, once:    scalerl setup     (finds or downloads libtorch; CUDA's libraries where a driver is present)"
