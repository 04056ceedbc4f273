package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/head/client"
	"muster/node/gateway"
	"muster/wire/api"
)

// severalHeads is a cluster with three heads and two nodes.
type severalHeads struct {
	*world
	dir   string
	ports []string
	heads []*program
	asks  *client.Head
	out   string // to which each job appends a line

	mu           sync.Mutex
	acknowledged []string // keys of jobs
	last         time.Time
	gap          time.Duration // the longest between two acknowledgements
}

func newSeveralHeads(t *testing.T) *severalHeads {
	h := &severalHeads{world: newWorld(t), dir: t.TempDir()}
	for d := h.dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	h.out = filepath.Join(h.dir, "out")
	authority, _, err := gateway.OpenAuthority(h.dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	_, err = authority.Head([]string{"127.0.0.1"}, 1)
	_, err2 := authority.Node([]string{"127.0.0.1", "na", "nb"}, 1)
	folder, err3 := authority.User(me.Username, 1)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h.ports = append(h.ports, anyPort(t))
		h.heads = append(h.heads, nil)
	}
	list := strings.Join(h.ports, ",")
	if h.asks, err = client.Open(list, folder); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i, head := range h.heads {
			if t.Failed() && head != nil {
				t.Logf("the log of head %d:\n%s", i, head.output)
			}
		}
	})
	for i := range h.heads {
		h.begin(i)
		h.eventually("the heads are together", func() bool { return len(h.follow(i+1)) == i+1 })
	}
	for _, name := range []string{"na", "nb"} {
		h.start("--name", name, "--tls-dir", filepath.Join(h.dir, "node-127.0.0.1"), "--state", filepath.Join(h.dir, name), "--devices", "none",
			"--head", list, "--spool", filepath.Join(h.dir, name+"-spool"))
	}
	return h
}

// begin starts a head. All but the first join it, if they have not.
func (h *severalHeads) begin(i int) {
	args := []string{
		"head", "--listen", h.ports[i], "--socket", "", "--page", "none", "--tls-dir", filepath.Join(h.dir, "head-127.0.0.1"), "--state", filepath.Join(h.dir, fmt.Sprint("head", i)),
	}
	if i > 0 {
		args = append(args, "--join", h.ports[0])
	}
	h.heads[i] = h.execute(made("muster"), args...)
}

// follow lists the heads with a vote that answer, if one of them leads and the others know it.
func (h *severalHeads) follow(count int) (all []api.Head) {
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	list, err := h.asks.Heads(ctx)
	if err != nil {
		return nil
	}
	for _, one := range list.Heads {
		if count == 1 && one.Leads {
			return list.Heads // it may be alone
		}
		if one.Error == "" && one.Votes && one.Leader != "" && one.Applied > 0 {
			all = append(all, one)
		}
	}
	return all
}

// leader is the number of the head that leads.
func (h *severalHeads) leader() (found int) {
	h.Helper()
	h.eventually("a head leads, and all follow it", func() bool {
		all := h.follow(3)
		if len(all) < 3 || all[0].Leader != all[1].Leader || all[0].Leader != all[2].Leader {
			return false
		}
		found = slices.Index(h.ports, all[0].Leader)
		return found >= 0
	})
	return found
}

// submit submits jobs until stop is closed, one after the other. A job that was not acknowledged is submitted
// again, as the same.
func (h *severalHeads) submit(by int, stop <-chan struct{}) {
	for i := 0; ; i++ {
		key := fmt.Sprintf("%d-%d", by, i)
		job := api.Submission{Key: key, Directory: h.dir, Arguments: []string{"sh", "-c", "echo " + key + " >> " + h.out}, Options: []string{"--output=/dev/null", "--cpus-per-task=1"}}
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, err := h.asks.Submit(h.Context(), &job)
			var refused *client.Refused
			if errors.As(err, &refused) && refused.Status < 500 {
				h.Errorf("%s: %v", key, err)
				return
			}
			if err == nil {
				break
			}
		}
		h.mu.Lock()
		now := time.Now()
		h.gap = max(h.gap, now.Sub(h.last))
		h.acknowledged, h.last = append(h.acknowledged, key), now
		h.mu.Unlock()
		select {
		case <-time.After(100 * time.Millisecond): // the nodes are to keep up
		case <-stop:
			return
		}
	}
}

func (h *severalHeads) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acknowledged)
}

// goOn waits until more jobs were acknowledged.
func (h *severalHeads) goOn() {
	h.Helper()
	now := h.count()
	h.eventually("more jobs are taken", func() bool { return h.count() >= now+6 || h.Failed() })
}

// The head that leads is killed again and again while jobs come, and once it is only stopped for a while: it
// must not decide anything then. Nothing that was acknowledged is lost, and nothing runs twice.
func TestHeadsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	t.Parallel()
	kills := 3
	if os.Getenv("MUSTER_SOAK") != "" {
		kills = 100
	}
	h := newSeveralHeads(t)
	h.last = time.Now()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for by := range 2 {
		all.Go(func() { h.submit(by, stop) })
	}
	h.goOn()
	for i := range kills {
		one := h.leader()
		if i == 1 {
			pid := h.heads[one].cmd.Process.Pid
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			h.goOn()
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			continue
		}
		_ = h.heads[one].cmd.Process.Kill()
		<-h.heads[one].exited
		h.goOn()
		h.begin(one)
	}
	h.leader()
	close(stop)
	all.Wait()
	ran := map[string]int{}
	h.eventually("all jobs have run", func() bool {
		text, _ := os.ReadFile(h.out)
		ran = map[string]int{}
		for _, key := range strings.Fields(string(text)) {
			ran[key]++
		}
		for _, key := range h.acknowledged {
			if ran[key] == 0 {
				return false
			}
		}
		return true
	})
	for key, times := range ran {
		if times > 1 {
			t.Errorf("job %s ran %d times", key, times)
		}
	}
	t.Logf("%d jobs, longest gap between two answers %v", len(h.acknowledged), h.gap.Round(time.Millisecond))
}
