package emulate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// hostname is the machine's name in the cluster's UTS namespace, so that Slurm's configuration does
// not depend on the machine's real name.
const hostname = "muster"

// gpuFolder has the device files of the pretended GPUs, which only the cluster sees.
const gpuFolder = "/emulated"

// layout is the input for the configuration files.
type layout struct {
	Options
	folder     string
	user       string // SlurmUser
	controller int    // ports
	nodes      []int
}

// nodeNames are n1 to n8, or n001 to n128.
func nodeNames(n int) []string {
	width := len(fmt.Sprint(n))
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%0*d", width, i+1)
	}
	return names
}

// span formats consecutive names as Slurm does: n[3-8].
func span(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("n[%s-%s]", names[0][1:], names[len(names)-1][1:])
}

// numbers formats ascending numbers as Slurm does: [17001-17004,17006].
func numbers(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j == i {
			parts = append(parts, fmt.Sprint(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
	}
	if len(list) == 1 {
		return parts[0]
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// remote is how many GPUs the cluster has to lend.
func (l layout) remote() int { return l.GPUs * l.GPUNodes }

// slurmConf is the text of slurm.conf. Scheduling is as quick as Slurm allows, and Slurm writes
// nothing outside the folder.
func (l layout) slurmConf() string {
	f := l.folder
	lines := []string{
		"ClusterName=muster",
		"SlurmctldHost=" + hostname + "(127.0.0.1)",
		"SlurmUser=" + l.user,
		"SlurmdUser=" + l.user,
		fmt.Sprintf("SlurmctldPort=%d", l.controller),
		"CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
		"AuthType=auth/munge",
		"CredType=cred/munge",
		"AuthInfo=socket=" + f + "/munge.socket",
		"AuthAltTypes=auth/jwt",
		"AuthAltParameters=jwt_key=" + f + "/jwt.key",
		"StateSaveLocation=" + f + "/state",
		"SlurmdSpoolDir=" + f + "/spool/%n",
		"SlurmctldPidFile=" + f + "/run/slurmctld.pid",
		"SlurmdPidFile=" + f + "/run/%n.pid",
		"SlurmctldLogFile=" + f + "/log/slurmctld.log",
		"SlurmdLogFile=" + f + "/log/%n.log",
		"SlurmctldSyslogDebug=quiet",
		"SlurmdSyslogDebug=quiet",
		"SlurmctldDebug=info",
		"SlurmdDebug=info",
		"ProctrackType=proctrack/linuxproc",
		"TaskPlugin=task/none",
		"JobCompType=jobcomp/filetxt",
		"JobCompLoc=" + f + "/log/jobcomp.txt",
		"MailProg=/bin/true",
		"MpiDefault=none",
		"PropagateResourceLimits=NONE",
		"ReturnToService=2",
		"SlurmctldTimeout=300",
		"SlurmdTimeout=300",
		"MessageTimeout=60",
		"InactiveLimit=0",
		"KillWait=5",
		"MinJobAge=300",
		"MaxJobCount=20000",
		"SchedulerType=sched/backfill",
		"SchedulerParameters=sched_min_interval=1,batch_sched_delay=0,sched_interval=30,default_queue_depth=2000,bf_interval=1",
		"SelectType=select/cons_tres",
		"SelectTypeParameters=CR_Core",
		"PriorityType=priority/basic",
		"GresTypes=gpu,rgpu",
		"SlurmdParameters=config_overrides",
		"PlugStackConfig=" + f + "/plugstack.conf",
		"TreeWidth=65533",
	}
	if n := l.remote(); n > 0 {
		lines = append(lines, fmt.Sprintf("Licenses=rgpu:%d", n))
	}
	if l.JobSubmit != "" {
		lines = append(lines, "JobSubmitPlugins=lua")
	}
	lines = append(lines, l.nodeLines()...)
	lines = append(lines, "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO")
	return override(lines, l.Extra)
}

// nodeLines define the nodes with GPUs and those without.
func (l layout) nodeLines() []string {
	names := nodeNames(l.Nodes)
	line := func(from, to int, gres string) string {
		return fmt.Sprintf("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%s CPUs=%d RealMemory=%d%s State=UNKNOWN",
			span(names[from:to]), hostname, numbers(l.nodes[from:to]), l.CPUs, l.MemoryMB, gres)
	}
	var lines []string
	if l.GPUs > 0 && l.GPUNodes > 0 {
		lines = append(lines, line(0, l.GPUNodes, fmt.Sprintf(" Gres=gpu:%d,rgpu:%d", l.GPUs, l.remote())))
	}
	if rest := l.GPUNodes; rest < l.Nodes {
		gres := ""
		if l.remote() > 0 {
			gres = fmt.Sprintf(" Gres=rgpu:%d", l.remote())
		}
		lines = append(lines, line(rest, l.Nodes, gres))
	}
	return lines
}

// gresConf is the text of gres.conf. A GPU is a device file of its own. rgpu is only a count, on
// every node that of all GPUs of the cluster, since a node may borrow any of them.
func (l layout) gresConf() string {
	if l.remote() == 0 {
		return ""
	}
	names := nodeNames(l.Nodes)
	last := ""
	if l.GPUs > 1 {
		last = fmt.Sprintf("[0-%d]", l.GPUs-1)
	} else {
		last = "0"
	}
	return fmt.Sprintf("AutoDetect=off\nNodeName=%s Name=gpu File=%s/gpu%s\nNodeName=%s Name=rgpu Count=%d Flags=CountOnly\n",
		span(names[:l.GPUNodes]), gpuFolder, last, span(names), l.remote())
}

// override drops the lines for which extra has one of its own, and appends extra.
func override(lines []string, extra string) string {
	given := map[string]bool{}
	for _, line := range strings.Split(extra, "\n") {
		given[lineKey(line)] = true
	}
	var b strings.Builder
	for _, line := range lines {
		if !given[lineKey(line)] {
			b.WriteString(line + "\n")
		}
	}
	if extra != "" {
		b.WriteString(strings.TrimRight(extra, "\n") + "\n")
	}
	return b.String()
}

// lineKey is what a line of slurm.conf sets: its first word, with the name if there may be several
// such lines.
func lineKey(line string) string {
	key, rest, ok := strings.Cut(strings.TrimSpace(line), "=")
	if !ok || strings.HasPrefix(key, "#") {
		return ""
	}
	key = strings.ToLower(strings.TrimSpace(key))
	switch key {
	case "nodename", "partitionname", "nodeset", "downnodes", "frontendname":
		name, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		return key + "=" + strings.ToLower(name)
	}
	return key
}

// writeConfig writes everything that the daemons read.
func (l layout) writeConfig(id identity) error {
	for _, dir := range []string{"state", "spool", "log", "run", "etc", "bin"} {
		if err := os.Mkdir(filepath.Join(l.folder, dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range nodeNames(l.Nodes) {
		if err := os.Mkdir(filepath.Join(l.folder, "spool", name), 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{
		"slurm.conf":        l.slurmConf(),
		"gres.conf":         l.gresConf(),
		"plugstack.conf":    l.PlugStack,
		"etc/passwd":        id.passwd,
		"etc/group":         id.group,
		"etc/hosts":         "127.0.0.1 localhost " + hostname + "\n::1 localhost\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	}
	if l.Release.CgroupConf != "" {
		files["cgroup.conf"] = l.Release.CgroupConf
	}
	if l.JobSubmit != "" {
		files["job_submit.lua"] = l.JobSubmit
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(l.folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for name, size := range map[string]int{"munge.key": 128, "jwt.key": 32} {
		if err := os.WriteFile(filepath.Join(l.folder, name), randomBytes(size), 0o600); err != nil {
			return err
		}
	}
	return nil
}
