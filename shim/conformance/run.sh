#!/bin/sh
# Runs the sequences and cases on the machine's own driver or through Muster:
# a line of seeds and a file for each ten sequences, and cases.txt.
# Usage: run.sh native|muster PROGRAMS OUT FIRST COUNT SECONDS; PROGRAMS is the
# folder with the programs sequence and cases. What is not done after SECONDS is
# left out.
set -eu
way=$1 programs=$2 out=$3 first=$4 count=$5 seconds=$6
here=$(dirname "$0")
mkdir -p "$out"
if [ "$way" = muster ]; then
	muster=${MUSTER:-bin/muster} socket=@muster-conformance-$$ node=
	"$muster" node --socket "$socket" --log-level error --text-log 2>"$out/node.log" &
	node=$!
	trap 'kill -INT $node' EXIT
	for _ in $(seq 100); do
		"$muster" ps --socket "$socket" >/dev/null 2>&1 && break
		sleep 0.1
	done
	by="$muster run --socket $socket --"
else
	by=
fi
jobs=$(($(nproc) < 4 ? $(nproc) : $(nproc) - 2))
sed -n 's/^== //p' "$here/golden/cases.txt" | xargs -P "$jobs" -I NAME sh -c "timeout 40 $by $programs/cases NAME >$out/case.NAME 2>$out/complaints.NAME || true"
for name in $(sed -n 's/^== //p' "$here/golden/cases.txt"); do cat "$out/case.$name"; done >"$out/cases.txt"
rm -f "$out"/case.* "$out"/complaints.*
timeout "$seconds" sh -c "seq $first 10 $((first + count - 1)) | xargs -P $jobs -I N sh -c '$by $programs/sequence --without $here/crashes.txt N 10 >$out/part.N 2>/dev/null && mv $out/part.N $out/seeds.N'" || true
rm -f "$out"/part.*
