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
# Lets several processes compute on the GPU at a time; its files lie in the present folder.
share_gpu() {
  export CUDA_MPS_PIPE_DIRECTORY=$PWD/mps CUDA_MPS_LOG_DIRECTORY=$PWD/mps
  mkdir -p mps
  nvidia-cuda-mps-control -d
  trap 'echo quit | nvidia-cuda-mps-control' EXIT
  python3 -c 'import torch; torch.zeros(1, device="cuda")' || { echo "MPS does not work here: use JOBS=1" >&2; exit 2; }
}
