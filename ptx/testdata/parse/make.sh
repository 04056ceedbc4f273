#!/bin/sh
# Compiles language.cu with the clang versions of Debian 12, in this folder.
set -e
cd "$(dirname "$0")"
make_ptx() { # version, name of the output, options
	version=$1 name=$2
	shift 2
	out=language-clang$version-$name.ptx
	command="clang-$version -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -fms-extensions -Xclang -target-feature -Xclang +ptx64 $* -S language.cu"
	echo "// $command -o $out" >"$out"
	$command -o - >>"$out"
}
make_ptx 14 O2 -O2
make_ptx 19 O0 -O0
make_ptx 19 O2 -O2
make_ptx 19 debug -O2 -g -fdebug-compilation-dir=.
make_ptx 22 O0 -O0
make_ptx 22 O2 -O2
