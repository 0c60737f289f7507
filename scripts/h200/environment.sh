# Sourced by the scripts beside it: finds the torch 2.11 of this machine's python3 and the scalerl binary.
#   SCALERL   the binary (default: target/release/scalerl)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
site=$(python3 -c 'import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec("torch").origin).parents[1])')
version=$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$site/torch/version.py")
[ "$version" = 2.11.0 ] || { echo "torch $version found in $site, 2.11.0 is needed" >&2; exit 2; }
libraries=$site/torch/lib
for folder in "$site"/nvidia/*/lib; do libraries=$libraries:$folder; done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
scalerl=${SCALERL:-target/release/scalerl}
[ -x "$scalerl" ] || { echo "$scalerl is missing: cargo build --release -p scalerl" >&2; exit 2; }
