package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"muster/campaign/vitals"
)

// A task's supervisor outlives its node and its head, so that jobs go on without them, and ends with the
// task's processes. So a script that fails while a job runs would leave both behind.

// supervisors are the processes that supervise tasks with a spool below a folder.
func supervisors(dir string) (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if strings.Contains(vitals.Words(pid), " task supervise "+dir+"/") && !vitals.IsZombie(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// endSupervisors kills them, with the processes of their tasks, which stay below them.
func endSupervisors(dir string) {
	for _, pid := range supervisors(dir) {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it starts nothing meanwhile
		for left := below(pid); len(left) > 0; left = below(pid) {
			for _, p := range left {
				_ = syscall.Kill(p, syscall.SIGKILL)
			}
			time.Sleep(time.Millisecond) // they take a moment to end
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		for !vitals.IsZombie(pid) {
			time.Sleep(time.Millisecond)
		}
	}
}

// below lists the living processes below one.
func below(pid int) (list []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(word)
			list = append(list, below(child)...)
			if !vitals.IsZombie(child) {
				list = append(list, child)
			}
		}
	}
	return list
}

// A script that ends while a job runs leaves no process behind.
func TestScriptsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts daemons")
	}
	file := filepath.Join(t.TempDir(), "unfinished.txtar")
	if err := os.WriteFile(file, []byte(`
env MUSTER_HEAD=unix:$WORK/head.socket MUSTER_SOCKET=$WORK/node.socket
exec muster head --socket $WORK/head.socket --state state --text-log &head&
exec sh until.sh muster nodes
exec muster node --name n1 --head unix:$WORK/head.socket --spool $WORK/spool --devices soft:memory=16M &node&
exec sh until.sh sh -c 'muster nodes | grep IDLE'
exec muster submit -n1 -- sh -c 'echo begun; sleep 1000; true'
exec sh until.sh sh -c 'muster logs 1 | grep begun'
kill -INT node
wait node
kill -INT head
wait head
-- until.sh --
until "$@" >/dev/null 2>&1; do sleep 0.02; done
`), 0o600); err != nil {
		t.Fatal(err)
	}
	work := ""
	t.Run("script", func(t *testing.T) {
		testscript.Run(t, testscript.Params{Files: []string{file}, RequireExplicitExec: true, Setup: func(env *testscript.Env) error {
			work = env.WorkDir
			return scriptSetup(env)
		}})
	})
	if work == "" {
		return // -run left the script out: all supervisors of the machine would look like its own
	}
	if left := supervisors(work); len(left) > 0 {
		t.Errorf("processes %v are left", left)
		endSupervisors(work)
	}
}
