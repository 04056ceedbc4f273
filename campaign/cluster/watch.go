package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/campaign/vitals"
)

// markVariable marks the processes of a campaign: daemons, and processes of jobs.
const markVariable = "MUSTER_CHAOS_CLUSTER"

// wholeVariable marks jobs that have whole GPUs.
const wholeVariable = "MUSTER_CHAOS_WHOLE"

// role is the role of a process in a campaign.
type role int

const (
	isDaemon     role = iota + 1
	isWorker          // of a node's daemon
	isSupervisor      // of a task
	isJob             // a process of a job
)

// taskName is a job's attempt on a node.
type taskName struct {
	job, attempt uint64
	node         string
}

func (t taskName) String() string {
	return fmt.Sprintf("job %d attempt %d on %s", t.job, t.attempt, t.node)
}

// seen is a process of the campaign.
type seen struct {
	pid     int
	started string // its start time, which distinguishes it from others with the same PID
	role    role
	node    string
	task    taskName
	cores   int
	devices []string // of its own node, NODE:DEVICE
	whole   bool
}

// alive says whether the process still exists and is no zombie.
func (s *seen) alive() bool { return startOf(s.pid) == s.started && !vitals.IsZombie(s.pid) }

// startOf is the start time of a process in the system's ticks; "" if there is none.
func startOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := bytes.Cut(text, []byte(") "))
	fields := strings.Fields(string(after))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// watcher checks a campaign's processes repeatedly.
type watcher struct {
	mark, dir string
	machines  []*machine
	violate   func(format string, args ...any)

	mu      sync.Mutex
	known   map[int]*seen
	foreign map[int]string // start times of processes that do not belong to the campaign, by PID
	looks   int
}

// look finds the processes of the campaign. It identifies each only once, unless the process may
// become something else by exec.
func (w *watcher) look() []*seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	entries, _ := os.ReadDir("/proc")
	now := map[int]*seen{}
	foreign := map[int]string{}
	var list []*seen
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		started := startOf(pid)
		// Look at other processes again from time to time, because one may have been about to exec
		// another program.
		if was, ok := w.foreign[pid]; ok && was == started && w.looks%10 != 0 {
			foreign[pid] = started
			continue
		}
		s := w.known[pid]
		if s == nil || s.started != started || s.role == isDaemon {
			s = w.identify(pid, started)
		}
		switch {
		case started == "" || vitals.IsZombie(pid):
		case s == nil:
			foreign[pid] = started
		default:
			now[pid] = s
			list = append(list, s)
		}
	}
	w.known, w.foreign = now, foreign
	return list
}

// identify determines the role of a process; nil if it does not belong to the campaign.
func (w *watcher) identify(pid int, started string) *seen {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	line := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	s := &seen{pid: pid, started: started}
	if len(line) == 4 && line[1] == "task" && line[2] == "supervise" && strings.HasPrefix(line[3], w.dir) {
		return w.supervisor(s, line[3])
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.Contains(text, []byte(markVariable+"="+w.mark+"\x00")) {
		return nil
	}
	variables := map[string]string{}
	for v := range strings.SplitSeq(string(text), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		variables[name] = value
	}
	s.node = variables["MUSTER_CHAOS_NODE"]
	job, err := strconv.ParseUint(variables["MUSTER_JOB_ID"], 10, 64)
	switch {
	case err == nil:
		s.role, s.node, s.whole = isJob, variables["MUSTER_NODENAME"], variables[wholeVariable] != ""
		attempt, _ := strconv.ParseUint(variables["MUSTER_RESTART_COUNT"], 10, 64)
		s.task = taskName{job, attempt + 1, s.node}
		s.cores, _ = strconv.Atoi(variables["MUSTER_CPUS_ON_NODE"])
		for name, value := range variables {
			if strings.HasPrefix(name, "RCUDA_DEVICE_") && strings.HasPrefix(value, s.node+":") {
				s.devices = append(s.devices, value)
			}
		}
	case len(line) > 1 && line[1] == "worker":
		s.role = isWorker
	default:
		s.role = isDaemon
	}
	return s
}

// supervisor identifies a task's supervisor by the task's folder in a node's spool.
func (w *watcher) supervisor(s *seen, folder string) *seen {
	for _, m := range w.machines {
		if rest, ok := strings.CutPrefix(folder, m.spool+"/tasks/"); ok {
			s.role, s.node = isSupervisor, m.name
			var part int
			_, _ = fmt.Sscanf(rest, "%d.%d.%d", &s.task.job, &s.task.attempt, &part)
			s.task.node = m.name
			return s
		}
	}
	return nil
}

// run makes the checks until the campaign ends.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.checkTasks(w.look())
		for _, m := range w.machines {
			w.checkGrants(m)
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookTime):
		}
	}
}

const lookTime = 50 * time.Millisecond

// checkTasks reports cores and whole GPUs of a node that are used by too many tasks.
func (w *watcher) checkTasks(list []*seen) {
	tasks := map[taskName]*seen{} // one process of each
	for _, s := range list {
		if s.role == isJob {
			tasks[s.task] = s
		}
	}
	cores := map[string][]*seen{}
	devices := map[string][]*seen{}
	for _, s := range tasks {
		cores[s.node] = append(cores[s.node], s)
		for _, d := range s.devices {
			devices[d] = append(devices[d], s)
		}
	}
	for _, m := range w.machines {
		sum := 0
		for _, s := range cores[m.name] {
			sum += s.cores
		}
		if sum > m.cores && together(cores[m.name]) {
			w.violate("%d cores run on %s, which has %d: %v", sum, m.name, m.cores, names(cores[m.name]))
		}
	}
	for d, users := range devices {
		if len(users) > 1 && slices.ContainsFunc(users, func(s *seen) bool { return s.whole }) && together(users) {
			w.violate("device %s is one job's alone, and several have it: %v", d, names(users))
		}
	}
}

// together says whether processes live at the same time. It checks all of them twice: if all are
// alive in both rounds, all were alive between the rounds.
func together(list []*seen) bool {
	for range 2 {
		for _, s := range list {
			if !s.alive() {
				return false
			}
		}
	}
	return true
}

func names(list []*seen) []string {
	var n []string
	for _, s := range list {
		n = append(n, s.task.String())
	}
	slices.Sort(n)
	return n
}

// checkGrants reports devices that a node's daemon has granted whole to one job and also to
// another.
func (w *watcher) checkGrants(m *machine) {
	g, err := m.grants()
	if err != nil {
		return // it is down or stopped
	}
	users := map[int][]string{}
	whole := map[int]bool{}
	for _, one := range g.Grants {
		if one.Limit == 0 { // nobody uses it: its job is suspended, or a restarted agent waits for what the head says
			continue
		}
		for _, d := range one.Devices {
			users[d.Device] = append(users[d.Device], one.ID)
			whole[d.Device] = whole[d.Device] || d.Memory == 0
		}
	}
	for d, ids := range users {
		if whole[d] && len(ids) > 1 {
			w.violate("%s has granted all of device %d, and to several: %v", m.name, d, ids)
		}
	}
}
