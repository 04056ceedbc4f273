#!/bin/sh
# Compiles every kernel with each of Debian's clangs that is installed, without
# the CUDA SDK. Usage: ./build.sh [OUTPUT-FOLDER]   (default: beside the sources)
# Goes on after a failure, names it, and exits 1 at the end.
out=${1:-$(dirname "$0")}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
cd "$(dirname "$0")" || exit 1
failed=0

# compile SOURCE CLANG OPTIMISATION LABEL
compile() {
  name=${1%.cu}
  # Without an SDK clang falls back to PTX 4.2, too old for shfl.sync and its
  # kin; so the PTX version is named with the architecture.
  case $name in
    sm80) arch=sm_80 version=ptx70 ;;
    *) arch=sm_70 version=ptx65 ;;
  esac
  # No contraction: a fused multiply-add is where the source says fmaf.
  "$2" -x cuda --cuda-device-only --cuda-gpu-arch=$arch \
    -nocudainc -nocudalib -fms-extensions -std=c++17 \
    -Xclang -target-feature -Xclang +$version \
    -ffp-contract=off -Wall -Wno-unknown-cuda-version "$3" -S "$1" -o "$out/$name.$4.ptx" ||
    { echo "failed: $1 with $2 $3" >&2; failed=1; }
}

for source in *.cu; do
  # mathlib needs libdevice, which comes with the SDK.
  [ "$source" = mathlib.cu ] && continue
  for clang in 14 19 22; do
    command -v clang-$clang >/dev/null || continue
    compile "$source" clang-$clang -O2 clang$clang
  done
  command -v clang-19 >/dev/null && compile "$source" clang-19 -O0 clang19-O0
done
exit $failed
