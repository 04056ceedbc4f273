#!/bin/sh
# Compiles every kernel with nvcc for compute_75 and compute_90.
# Usage: [NVCC=path] ./build-nvcc.sh [OUTPUT-FOLDER]   (default: beside the sources)
# Finds nvcc through NVCC, then PATH, then CUDA_HOME. Goes on after a failure,
# prints it, and exits 1 at the end.
out=${1:-$(dirname "$0")}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
cd "$(dirname "$0")" || exit 1
nvcc=${NVCC:-$(command -v nvcc || echo "${CUDA_HOME:-}/bin/nvcc")}
"$nvcc" --version || { echo "no nvcc: set NVCC or CUDA_HOME" >&2; exit 1; }
failed=0

for source in *.cu; do
  name=${source%.cu}
  for arch in 75 90; do
    # sm80 has instructions that compute_75 lacks.
    [ $name$arch = sm8075 ] && continue
    # No contraction: a fused multiply-add is where the source says fmaf.
    if "$nvcc" -ptx -arch=compute_$arch -std=c++17 -fmad=false \
        -o "$out/$name.nvcc$arch.ptx" "$source"; then
      echo "made $name.nvcc$arch.ptx"
    else
      echo "failed: $source for compute_$arch"
      rm -f "$out/$name.nvcc$arch.ptx"
      failed=1
    fi
  done
done
exit $failed
