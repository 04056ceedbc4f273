#!/bin/bash
# record.sh has a real Slurm schedule jobs that sleep, and writes what it did:
#
#   cd policy/consres/testdata/real
#   muster slurm emulate --nodes 128 --gpus 2 --extra slurm.conf -- bash record.sh v1
#
# reads v1.jobs, a line a job with its run time in seconds and its options, submits all of them in
# order, waits for the last to end, and writes v1.txt:
#
#   clock 14                 how many seconds into a minute time 0 is, the first submission
#   pass 25                  when the first pass of backfilling began
#   job 0 1 191 n[001-002] -N2 --ntasks-per-node=4 -t 4
#                            when a job was submitted, started and ended, where, and its options
#   reserved 26 244 n[035-044,069-114]
#                            what was reserved in that pass: for which job, from when, where
#
# All times are seconds. It takes as long as the jobs do: half an hour for v1. v1d30 has the jobs of v1, and
# slurm-d30.conf. The lists of jobs are those of the generator "aucsched", seed 1, on 128 nodes:
#
#   v1, v1none  workload=V hours=0.3; v1none without time limits, the others with the next full minute
#   v1many      workload=V hours=0.25 max_cores=48 min_run=30 max_run=240
#   iv3         workload=IV contiguous=100 hours=0.3
#   i1short     workload=I hours=0.1 max_cores=32 min_run=10 max_run=60
set -eu
name=$1
log=$(dirname "$SLURM_CONF")/log
while read -r run options; do
	sbatch --quiet -o /dev/null -e /dev/null $options --wrap "sleep $run"
done <"$name.jobs"
while [ -n "$(squeue -h)" ]; do
	sleep 2
done
awk -v jobs="$name.jobs" '
function seconds(text) {
	gsub(/[-T:]/, " ", text)
	return mktime(substr(text, 1, 19))
}
function field(key,   text) {
	text = $0
	sub(".* " key "=", "", text)
	sub(" .*", "", text)
	return text
}
function after(words,   text) {
	text = $0
	sub(".*" words " ", "", text)
	sub(",? .*", "", text)
	return text
}
FILENAME == jobs { sub(/^[^ ]* /, ""); options[FNR] = $0; count = FNR; next }
/^JobId=/ {
	id = substr($1, 7) + 0
	submit[id] = seconds(field("SubmitTime")); start[id] = seconds(field("StartTime")); end[id] = seconds(field("EndTime")); nodes[id] = field("NodeList")
	next
}
/_attempt_backfill: beginning/ { if (first == "" && seconds(substr($1, 2)) >= submit[1]) first = seconds(substr($1, 2)); else if (first != "") over = 1 }
/to start at/ && first != "" && !over {
	id = field("BACKFILL: JobId") + 0
	reserved[++reservations] = id; from[id] = seconds(after("start at")); on[id] = after("on nodes")
}
END {
	zero = submit[1]
	print "clock", zero % 60
	print "pass", first - zero
	for (i = 1; i <= count; i++) print "job", submit[i] - zero, start[i] - zero, end[i] - zero, nodes[i], options[i]
	for (i = 1; i <= reservations; i++) print "reserved", reserved[i], from[reserved[i]] - zero, on[reserved[i]]
}' "$name.jobs" "$log/jobcomp.txt" "$log/slurmctld.log" >"$name.txt"
