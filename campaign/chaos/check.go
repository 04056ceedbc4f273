package chaos

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"muster/campaign/vitals"
)

// eventually waits until nothing is wrong, and returns what is still wrong at the end of the
// patience. It looks less and less often: what is not right at once mostly takes long.
func eventually(patience time.Duration, wrong func() []string) []string {
	end := time.Now().Add(patience)
	for pause := pollTime; ; pause = min(2*pause, 100*time.Millisecond) {
		left := wrong()
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
		time.Sleep(pause)
	}
}

// idle waits until no program uses the node, and all its resources are free again.
func (e *episode) idle() error {
	left := eventually(e.o.Patience, e.taken)
	if len(left) > 0 {
		return fmt.Errorf("the node is not free again: %s", strings.Join(left, "; "))
	}
	return nil
}

// taken lists the resources of the node that are not free, by its status.
func (e *episode) taken() []string {
	s, err := e.node.status()
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	for _, d := range s.Devices {
		if d.Free != d.Memory || d.Assigned != 0 || d.Lost {
			left = append(left, fmt.Sprintf("%s has %d of %d bytes free and %d virtual GPUs taken (lost: %v)", d.Name, d.Free, d.Memory, d.Assigned, d.Lost))
		}
	}
	if len(s.Clients) > 0 || s.Committed > 0 {
		left = append(left, fmt.Sprintf("%d clients, and %d bytes of the swap area promised", len(s.Clients), s.Committed))
	}
	for _, p := range s.Problems {
		left = append(left, p.String())
	}
	return left
}

// checkLeaks checks what is left when all programs have ended, then stops the daemon and checks
// what is left of it.
func (e *episode) checkLeaks() {
	report := func(what string, wrong func() []string) {
		for _, w := range eventually(e.o.Settle, wrong) {
			e.violate("%s: %s", what, w)
		}
	}
	report("the node is not free again", e.taken)
	report("the daemon has more than in the beginning", func() []string {
		now, err := vitals.Read(e.node.pid())
		if err != nil {
			return []string{err.Error()}
		}
		return vitals.Grown(e.before, now)
	})
	report("processes are left of programs", e.strays)
	report("files are left in the swap area", e.swapFiles)
	if err := e.node.stop(e.o.Patience); err != nil {
		e.violate("%v", err)
	}
	report("processes are left of the node", func() []string {
		var left []string
		for pid, p := range look(e.mark, nil) {
			left = append(left, fmt.Sprintf("process %d (%s)", pid, vitals.Words(p.pid)))
		}
		return left
	})
	report("files are left", func() []string { return e.leftFiles(e.node.socket) })
	for _, line := range e.node.trouble() {
		e.violate("%s", line)
	}
	e.replay()
}

// strays are processes that are neither the daemon nor a spare worker.
func (e *episode) strays() []string {
	e.look()
	var left []string
	waiting := 0
	for pid, p := range e.processes {
		switch {
		case p.role == isDaemon && pid == e.node.pid():
		case p.role == isWorker && len(p.shared) == 0 && waiting < e.spec.warm:
			waiting++
		default:
			left = append(left, fmt.Sprintf("process %d (%s)", pid, vitals.Words(pid)))
		}
	}
	return left
}

// replay replays the recorded decisions of the last daemon.
func (e *episode) replay() {
	if !e.spec.records || len(e.violations) > 0 {
		return
	}
	out, err := exec.Command(e.o.Muster, "node", "replay", filepath.Join(e.dir, "decisions.jsonl")).CombinedOutput()
	if err != nil {
		e.violate("the recorded decisions are not made again: %v: %s", err, out)
	}
}
