#!/bin/bash
# record.sh asks a real Slurm how it reads option lines, and writes what it says
# into this folder:
#
#   real-slurm.tsv          what became of each line of lines.txt
#   real-slurm-options.tsv  the options that sbatch, srun and salloc know
#
# It needs slurmctld, slurmd, sbatch, srun, salloc, scontrol and squeue in PATH (in
# Debian: slurmctld, slurmd, slurm-client and slurm-wlm-basic-plugins) and four
# character devices that stand for GPUs. The small cluster of 8 nodes is its own,
# of this machine alone, and gone at the end. Nothing that runs already is touched.
#
# Each line is submitted as a held job and read back with scontrol. Those under a
# heading that ends with "Run them." are then released, alone on the cluster, to
# see what they get.
#
# Set KEEP=1 to keep the folder with the logs.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
port=${PORT:-16917}
export PATH=$PATH:/usr/sbin:/usr/local/sbin

cluster() {
	local host=$(hostname -s) user=$(id -un)
	mkdir -p "$root"/{state,spool,log,jobs}
	cat >"$root/slurm.conf" <<-CONF
		ClusterName=record
		SlurmctldHost=$host(127.0.0.1)
		SlurmUser=$user
		SlurmdUser=$user
		AuthType=auth/none
		CredType=cred/none
		SlurmctldPort=$port
		StateSaveLocation=$root/state
		SlurmdSpoolDir=$root/spool/%n
		SlurmctldPidFile=$root/slurmctld.pid
		SlurmdPidFile=$root/slurmd.%n.pid
		SlurmctldLogFile=$root/log/slurmctld
		SlurmdLogFile=$root/log/slurmd.%n
		CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		AccountingStorageType=accounting_storage/none
		MpiDefault=none
		PropagateResourceLimits=NONE
		ReturnToService=2
		KillWait=2
		MaxJobCount=20000
		SchedulerType=sched/backfill
		SchedulerParameters=sched_min_interval=1,batch_sched_delay=0
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core_Memory
		PriorityType=priority/basic
		GresTypes=gpu,rgpu
		SlurmdParameters=config_overrides
		PlugStackConfig=$root/plugstack.conf
		NodeName=DEFAULT CPUs=12 Sockets=2 CoresPerSocket=6 ThreadsPerCore=1 RealMemory=32768
		NodeName=n[1-4] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 4))] Gres=gpu:k20:4,rgpu:8
		NodeName=n[5-8] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 5))-$((port + 8))] Gres=gpu:2080ti:4,rgpu:8
		PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
		PartitionName=gpu Nodes=n[1-4] MaxTime=INFINITE State=UP
	CONF
	: >"$root/plugstack.conf"
	for device in null zero full urandom; do
		echo "NodeName=n[1-4] Name=gpu Type=k20 File=/dev/$device"
		echo "NodeName=n[5-8] Name=gpu Type=2080ti File=/dev/$device"
	done >"$root/gres.conf"
	echo "NodeName=n[1-8] Name=rgpu Count=8 Flags=CountOnly" >>"$root/gres.conf"
}

# slurm runs a command as a user without any setting of Slurm would.
slurm() { timeout 10 env -i PATH="$PATH" HOME="$root" SLURM_CONF="$root/slurm.conf" "$@"; }

start() {
	slurm slurmctld -c
	for n in 1 2 3 4 5 6 7 8; do
		mkdir -p "$root/spool/n$n"
		slurm slurmd -N "n$n"
	done
	for _ in $(seq 100); do
		[ "$(slurm sinfo -h -t idle -o %D -p main 2>/dev/null)" = 8 ] && return
		sleep .1
	done
	echo "record.sh: the cluster does not start: see $root/log" >&2
	KEEP=1
	exit 1
}

stop() {
	local pids=$(cat "$root"/*.pid 2>/dev/null)
	[ -n "$pids" ] && kill $pids 2>/dev/null
	for _ in $(seq 50); do
		local left=
		for p in $pids; do
			[ -e /proc/$p ] && ! grep -q '^State:.Z' /proc/$p/status 2>/dev/null && left="$left $p"
		done
		[ -z "$left" ] && break
		sleep .1
	done
	[ -n "$left" ] && kill -9 $left 2>/dev/null
	[ -n "${KEEP:-}" ] || rm -rf "$root"
}

# names asks a tool for its options. An option that is not finished makes getopt
# name all that begin so, which gives the hidden ones, too.
names() {
	local tool=$1 stem=$2 answer
	answer=$(slurm "$tool" "--$stem" </dev/null 2>&1 | grep -m1 -e "ambiguous" -e "unrecognized option '--$stem'")
	case $answer in
	*ambiguous*) grep -o "'--[^']*'" <<<"${answer#*possibilities}" | tr -d "'" ;;
	*unrecognized*) ;;
	*) echo "--$stem?" ;; # a beginning of one option alone: only that is known
	esac
}

options() {
	printf 'tool\toption\targument\n'
	for tool in sbatch srun salloc; do
		for letter in {a..z}; do names $tool $letter; done | sort -u | while read -r name; do
			case $name in
			--help | --usage | --version) continue ;; # they end the tool at once
			*\?) name=$(slurm $tool --help | grep -o -- "${name%\?}[a-z0-9-]*" | head -1) ;;
			esac
			[ -n "$name" ] && printf '%s\t%s\t%s\n' $tool "$name" "$(argument $tool "$name")"
		done
		for letter in {a..z} {A..Z}; do
			case $letter in h | V) continue ;; esac
			kind=$(shortArgument $tool $letter)
			[ -n "$kind" ] && printf '%s\t-%s\t%s\n' $tool $letter $kind
		done
	done
}

# argument says whether a long option has a value. --no-such-option stops the tool
# before it does anything.
argument() {
	case $(slurm "$1" "$2=?" --no-such-option </dev/null 2>&1) in
	*"doesn't allow an argument"*) echo none; return ;;
	esac
	case $(slurm "$1" "$2" </dev/null 2>&1) in
	*"'$2' requires an argument"*) echo required ;;
	*) echo optional ;;
	esac
}

shortArgument() {
	case $(slurm "$1" --no-such-option "-$2" </dev/null 2>&1; slurm "$1" "-$2?" --no-such-option </dev/null 2>&1) in
	*"invalid option -- '$2'"*) return ;;
	*"invalid option -- '?'"*) echo none; return ;;
	esac
	case $(slurm "$1" "-$2" </dev/null 2>&1) in
	*"requires an argument -- '$2'"*) echo required ;;
	*) echo optional ;;
	esac
}

# field finds NAME=VALUE in what scontrol says of a job.
field() { sed -nE "s#.* $1=([^ ]*).*#\1#p" <<<" $shown "; }

# jobs records what becomes of every line. A line may have a script before it, with
# \n between its lines, and a tab between.
jobs() {
	printf 'options\tscript\tanswer\treason\tnodes\ttasks\tcpus\tcpusPerTask\ttasksPerNode\tmemoryPerNode\tmemoryPerCPU\tmemory\tgpusAndLike\ttime\tnodeList\texclude\tcontiguous\tshared\tname\tpartition\taccount\tqos\tgotNodes\tgotNodeList\tgotCPUsPerNode\tgotTasksPerNode\tgotGPUs\n'
	local line number=0 run= script
	while IFS= read -r line || [ -n "$line" ]; do
		case $line in
		'# '*"Run them.") run=yes; continue ;;
		'# '*) run=; continue ;;
		'') continue ;;
		esac
		number=$((number + 1))
		script=
		case $line in *$'\t'*) script=${line%%$'\t'*} line=${line#*$'\t'} ;; esac
		record "$line" "$script" $number
	done <"$here/lines.txt"
}

record() {
	local line=$1 script=$2 number=$3 file="$root/jobs/$3/job" tool=sbatch answer rc job shown memory
	declare -a words
	eval "words=($line)"
	case ${words[0]:-} in sbatch | srun | salloc) tool=${words[0]} words=("${words[@]:1}") ;; esac
	mkdir -p "$root/jobs/$number"
	cd "$root/jobs/$number" || exit 1
	{
		if [ -n "$script" ]; then printf '%b\n' "$script"; else echo '#!/bin/sh'; fi
		echo 'echo "$SLURM_JOB_NUM_NODES|$SLURM_JOB_NODELIST|$SLURM_JOB_CPUS_PER_NODE|$SLURM_TASKS_PER_NODE|$SLURM_GPUS_ON_NODE" >'"$root/jobs/$number.got"
	} >"$file"
	chmod +x "$file"
	local own=(-H) after=("$file")
	[ $tool = sbatch ] && own=(-H -o /dev/null --parsable)
	case " $line" in *" --wrap"*) after=() ;; *" -D"*) own=(-H) ;; esac
	if [ $tool = sbatch ]; then
		answer=$(slurm sbatch "${own[@]}" "${words[@]}" "${after[@]}" </dev/null 2>&1)
		rc=$?
		job=$(grep -oE '^[0-9]+$|Submitted batch job [0-9]+' <<<"$answer" | grep -oE '[0-9]+$')
	else
		slurm $tool "${own[@]}" "${words[@]}" "${after[@]}" </dev/null >"$root/jobs/$number.answer" 2>&1 &
		local client=$!
		rc=1
		for _ in $(seq 40); do
			job=$(grep -a -m1 -oE 'job (allocation )?[0-9]+ (queued|has been)' "$root/jobs/$number.answer" 2>/dev/null | grep -oE '[0-9]+')
			[ -n "$job" ] && break
			kill -0 $client 2>/dev/null || break
			sleep .05
		done
		answer=$(cat "$root/jobs/$number.answer")
	fi
	# -Q hides the number.
	[ -z "$job" ] && [ $rc = 0 ] && job=$(slurm squeue -h -o %A -S -i | head -1)
	if [ -z "$job" ]; then
		printf '%s\t%s\trefused\t%s' "$line" "$script" "$(grep -v -e '^Try ' <<<"$answer" | tail -1 | sed -E "s/^(sbatch|srun|salloc): //; s/^error: //; s|$root|ROOT|g" | tr '\t' ' ')"
		printf '\t%.0s' {1..23}
		echo
		return
	fi
	shown=$(slurm scontrol -o show job "$job")
	memory=$(slurm squeue -h --noconvert -j "$job" -O MinMemory:40 | tr -d ' ')
	local perNode= perCPU=
	[[ $shown == *MinMemoryNode=* ]] && perNode=yes
	[[ $shown == *MinMemoryCPU=* ]] && perCPU=yes
	printf '%s\t%s\taccepted\t' "$line" "$script"
	printf '\t%s' "$(field NumNodes)" "$(field NumTasks)" "$(field NumCPUs)" "$(field CPUs/Task)" \
		"$(field NtasksPerN:B:S:C | cut -d: -f1)" "$perNode" "$perCPU" "$memory" \
		"$(grep -oE 'TresPer(Job|Node|Task|Socket)=[^ ]*' <<<"$shown" | paste -sd' ')" \
		"$(field TimeLimit)" "$(field ReqNodeList)" "$(field ExcNodeList)" "$(field Contiguous)" "$(field OverSubscribe)" \
		"$(sed -nE 's/.* JobName=(.*) UserId=.*/\1/p' <<<" $shown")" "$(field Partition)" "$(field Account)" "$(field QOS)"
	if [ -n "$run" ] && [ $tool = sbatch ]; then
		alone "$job" "$root/jobs/$number.got"
	else
		printf '\t\t\t\t\t\n'
	fi
	slurm scancel "$job" 2>/dev/null
}

# alone lets a job run on the empty cluster, and says what it got.
alone() {
	slurm scontrol release "$1" 2>/dev/null
	for _ in $(seq 60); do
		[ -s "$2" ] && break
		sleep .05
	done
	[ -s "$2" ] || echo 'never||||' >"$2"
	tr '|' '\t' <"$2" | sed 's/^/\t/'
	slurm scancel "$1" 2>/dev/null
	for _ in $(seq 60); do
		[ -z "$(slurm squeue -h -o %i -t R,CG)" ] && break
		sleep .05
	done
}

cluster
trap stop EXIT
start
options >"$root/options"; cp "$root/options" "$here/real-slurm-options.tsv"
slurm scancel -u "$(id -un)" # salloc took what it was asked for while it was asked how
jobs >"$root/jobs.tsv"; cp "$root/jobs.tsv" "$here/real-slurm.tsv"
