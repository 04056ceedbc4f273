#!/bin/sh
# Runs the sequences and cases, with the machine's own driver or through Muster:
# the results as golden/ has them.
# Usage: run.sh native|muster PROGRAMS OUT [GROUPS]; PROGRAMS is the folder with the
# programs, OUT gets cases.txt, captures.txt, graphs.txt, families.txt, others.txt, images.txt and
# sequences.txt, GROUPS is how many groups of four seeds (default 15).
set -eu
way=$1 programs=$2 out=$3 groups=${4:-15}
mkdir -p "$out"
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
by=
if [ "$way" = muster ]; then
	muster=${MUSTER:-bin/muster} socket=@muster-conformance-$$
	"$muster" node --socket "$socket" --log-level error --text-log &
	node=$!
	trap 'kill -INT $node; rm -rf "$parts"' EXIT
	for _ in $(seq 100); do
		"$muster" ps --socket "$socket" >/dev/null 2>&1 && break
		sleep 0.1
	done
	by="$muster run --socket $socket --"
fi
names=$($by "$programs/cases" --list)
echo "$names" | xargs -P "$(nproc)" -I NAME sh -c "$by $programs/cases NAME >$parts/NAME"
for name in $names; do cat "$parts/$name"; done >"$out/cases.txt"
$by "$programs/captures" >"$out/captures.txt"
$by "$programs/graphs" >"$out/graphs.txt"
$by "$programs/families" >"$out/families.txt"
$by "$programs/others" >"$out/others.txt"
$by "$programs/images" >"$out/images.txt"
seq 1 4 $((4 * groups)) | xargs -P "$(nproc)" -I N sh -c "$by $programs/sequence N 4 >$parts/N"
for n in $(seq 1 4 $((4 * groups))); do cat "$parts/$n"; done >"$out/sequences.txt"
