#!/bin/sh
# Makes the fat binaries of this folder, and beside each what cuobjdump says of
# it: the command, the list of entries, and the sums of what it extracts.
# Usage: [CUDA_HOME=folder] ./make.sh [OUTPUT-FOLDER]   (default: this folder)
# Needs nvcc 13, cuobjdump, objcopy and the kernels in ptx/testdata/kernels.
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
kernels=$here/../../../ptx/testdata/kernels
[ -n "$CUDA_HOME" ] && PATH=$CUDA_HOME/bin:$PATH
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# describe NAME IMAGE COMMAND: writes NAME.txt from what cuobjdump reads.
describe() {
  mkdir "$work/$1.x" && cd "$work/$1.x" || return
  {
    echo "command: $3"
    cuobjdump "$2" 2>/dev/null | grep -v '^$'
    cuobjdump -xptx all -xelf all "$2" >/dev/null 2>&1
    sha256sum -- * | sed 's/^/sum: /'
  } >"$out/$1.txt"
}

# one NAME OPTIONS: the kernels of vecadd.cu as nvcc -fatbin compiles them.
one() {
  name=$1
  shift
  mkdir "$work/$name" && cd "$work/$name" && cp "$kernels/vecadd.cu" . || return
  if nvcc -fatbin "$@" -o "$out/$name.fatbin" vecadd.cu >log 2>&1; then
    describe "$name" "$out/$name.fatbin" "nvcc -fatbin $* vecadd.cu"
  else
    echo "failed: $name: $(cat log)" >&2
  fi
}

# linked: an executable of two sources; its section .nv_fatbin as an image.
linked() {
  mkdir "$work/linked" && cd "$work/linked" && cp "$kernels/vecadd.cu" "$kernels/histogram.cu" . || return
  echo 'int main() { return 0; }' >main.cu
  nvcc -o program main.cu vecadd.cu histogram.cu &&
    objcopy -O binary --only-section=.nv_fatbin program "$out/linked.fatbin" &&
    describe linked "$PWD/program" "nvcc -o program main.cu vecadd.cu histogram.cu; objcopy -O binary --only-section=.nv_fatbin program"
}

ptx90="-gencode arch=compute_90,code=compute_90"
elf90="-gencode arch=compute_90,code=sm_90"
one default &
one compress-all -Xfatbin -compress-all &
for mode in none speed balance size; do
  one mode-$mode --compress-mode=$mode -arch=sm_90 &
done
one ptx $ptx90 &
one elf $elf90 &
one many -gencode arch=compute_75,code=sm_75 -gencode arch=compute_80,code=compute_80 \
  $elf90 -gencode arch=compute_120,code=sm_120 -gencode arch=compute_120,code=compute_120 &
one variants -gencode arch=compute_90a,code=compute_90a -gencode arch=compute_100f,code=compute_100f &
one debug -G $ptx90 &
one relocatable -dc $ptx90 $elf90 &
one lto -dc -gencode arch=compute_90,code=lto_90 $ptx90 &
linked &
wait
