#!/usr/bin/env bash
# The Python package as a user gets it: a wheel, installed into clean environments with no frames, with pandas and with polars.
# Usage: scripts/test/python.sh [WHEEL]; without one it is built (SCALERL_WHEEL_PROFILE, else dev: the numbers are the same).
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
out=out/python
mkdir -p "$out"
pytest="pytest==8.4.2 pytest-timeout==2.4.0"

environment() { # NAME PACKAGES…: an environment with the wheel and what is named
    local name=$1
    shift
    rm -rf "$out/venv-$name"
    "$python" -m venv "$out/venv-$name"
    "$out/venv-$name/bin/pip" install --quiet --disable-pip-version-check "$wheel" "$@"
}

wheel=${1:-}
if [ -z "$wheel" ]; then
    test -x "$out/venv-build/bin/maturin" || "$python" -m venv "$out/venv-build"
    "$out/venv-build/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9.4,<2'
    rm -rf "$out/wheels"
    "$out/venv-build/bin/maturin" build --quiet --locked --profile "${SCALERL_WHEEL_PROFILE:-dev}" --out "$out/wheels"
    wheel=$(ls "$out"/wheels/*.whl)
fi
echo "wheel: $(basename "$wheel"), $(du -h "$wheel" | cut -f1)"

# Outside the tree and with nothing but the interpreter to call: what is imported is the wheel, and nothing is compiled.
environment none
interpreter=$PWD/$out/venv-none/bin/python
test "$("$interpreter" -m pip list --format=freeze | grep -civ '^\(pip\|setuptools\|scalerl\)')" = 0
(cd / && env -i PATH=/nonexistent "$interpreter" -c 'import scalerl; print("imported", scalerl.__version__, "without a compiler")')

"$out/venv-none/bin/pip" install --quiet --disable-pip-version-check $pytest
environment pandas $pytest pandas matplotlib mypy==1.18.2 nbmake==1.5.5 ipykernel
environment polars $pytest polars
for frames in none pandas polars; do
    echo "== $frames"
    SCALERL_TEST_FRAMES=$frames "$out/venv-$frames/bin/python" -m pytest --quiet --timeout 120 -p no:cacheprovider
done
echo "== types"
"$out/venv-pandas/bin/mypy" --cache-dir "$out/mypy" python/scalerl
"$out/venv-pandas/bin/python" -m mypy.stubtest scalerl._native --mypy-config-file pyproject.toml --ignore-disjoint-bases
echo "== notebook"
"$out/venv-pandas/bin/python" -m pytest --quiet -p no:cacheprovider --nbmake --nbmake-timeout=120 examples/forecast.ipynb
