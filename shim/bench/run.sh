#!/bin/sh
# Runs the microbenchmarks through nodes of their own and prints lines of JSON:
# bench's, with the way the calls took, and what the nodes' processes used.
# Usage: run.sh MUSTER BENCH [PART...]; the parts are ring, tcp, allocations, attach, crowd and swap.
set -eu
muster=$1 bench=$2
shift 2
[ $# -gt 0 ] || set -- ring tcp allocations attach crowd swap
folder=$(mktemp -d)
node=
trap 'if [ -n "$node" ]; then kill -INT "$node"; fi; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
socket=@muster-bench-$$

# start_node FLAG...: a node for this script alone.
start_node() {
	"$muster" node --socket "$socket" --log-level error --text-log "$@" &
	node=$!
	for _ in $(seq 100); do
		"$muster" ps --socket "$socket" >/dev/null 2>&1 && break
		sleep 0.05
	done
	sleep 0.5 # its first workers start
}

stop_node() {
	kill -INT "$node"
	wait "$node" || true
	node=
}

by() { sed "s/^{/{\"by\": \"$1\", /"; }

through() { "$muster" run --socket "$socket" -- "$bench" "$@"; }

# seconds of processor time that the node and its workers have used
processor() {
	for p in "$node" $(workers); do cat /proc/"$p"/task/*/schedstat; done | awk '{ s += $1 } END { printf "%.2f", s / 1e9 }'
}

workers() { cat /proc/"$node"/task/*/children; }

# pss PROCESS...: kB of memory, what is shared counted in parts
pss() { for p in "$@"; do grep '^Pss:' /proc/"$p"/smaps_rollup; done | awk '{ s += $2 } END { print s + 0 }'; }

for part; do
	case $part in
	ring)
		start_node --devices soft:memory=1G
		through calls | by ring
		through copies | by ring
		stop_node
		;;
	tcp)
		"$muster" cert "$folder/certs" --host 127.0.0.1 --user bench >/dev/null
		start_node --devices soft:memory=1G --listen 127.0.0.1:19421 --tls-dir "$folder/certs/node-127.0.0.1"
		for what in calls copies; do
			"$muster" run --node 127.0.0.1:19421 --tls-dir "$folder/certs/user-bench" -- "$bench" $what | by tcp
		done
		stop_node
		;;
	allocations)
		start_node --devices soft:memory=1G
		through allocations 100000 | by ring
		stop_node
		;;
	attach)
		for warm in 2 0; do
			start_node --devices soft:memory=1G --warm $warm
			through attach 21 | by "$warm warm workers"
			stop_node
		done
		;;
	crowd)
		start_node --devices soft:memory=1G --warm 2
		before=$(pss "$node")
		mkfifo "$folder/hold"
		"$muster" run --socket "$socket" -- "$bench" crowd 200 <"$folder/hold" >"$folder/crowd" &
		crowd=$!
		exec 3>"$folder/hold"
		while ! [ -s "$folder/crowd" ] && kill -0 $crowd; do sleep 0.1; done
		by ring <"$folder/crowd"
		echo "{\"name\": \"processor time of node and workers for 200 programs\", \"unit\": \"s\", \"value\": $(processor)}"
		sleep 2
		set -- $(workers)
		echo "{\"name\": \"memory of an idle client's worker\", \"unit\": \"MiB\", \"value\": $(awk "BEGIN { printf \"%.2f\", $(pss "$@") / $# / 1024 }")}"
		echo "{\"name\": \"memory of the node for a client\", \"unit\": \"MiB\", \"value\": $(awk "BEGIN { printf \"%.3f\", ($(pss "$node") - $before) / 200 / 1024 }")}"
		exec 3>&-
		wait $crowd
		stop_node
		;;
	swap)
		start_node --devices soft:memory=512M
		through swap 384 | by ring
		stop_node
		;;
	*)
		echo "run.sh: no part $part" >&2
		exit 2
		;;
	esac
done
