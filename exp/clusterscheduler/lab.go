package clusterscheduler

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/exp/bench"
	"muster/head/client"
	"muster/node/gateway"
	"muster/wire/api"
)

// programs are the examples that are run.
var programs = []string{mm.program, nw.program, adfa.program}

// setting is the cluster and the policy that a measurement needs.
type setting struct {
	policy string
	hosts  []host
	// roam says that the nodes move programs to faster and emptier GPUs, their own and those of each other, as
	// far as the programs' jobs let them.
	roam bool
}

// living is a running cluster: a head and nodes, each a process.
type living struct {
	setting
	bench.Daemons
	dir  string
	head *client.Head

	authority *gateway.Authority // that vouches for nodes which lend each other GPUs
	network   string             // the first bytes of their addresses on the loopback device
}

// patienceUp limits the time for a cluster to start, and patienceRun that for a run of jobs.
const (
	patienceUp  = time.Minute
	patienceRun = 5 * time.Minute
)

// startCluster starts a head and nodes, and waits until the nodes have joined.
func startCluster(ctx context.Context, t bench.Tools, s setting) (*living, error) {
	dir, err := os.MkdirTemp("", "muster-"+name+"-")
	if err != nil {
		return nil, err
	}
	l := &living{setting: s, Daemons: bench.Daemons{Tools: t}, dir: dir, network: fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(255))}
	if err := l.start(ctx); err != nil {
		l.stop()
		return nil, fmt.Errorf("%w\n%s", err, l.Logs())
	}
	return l, nil
}

func (l *living) start(ctx context.Context) error {
	socket := "@muster-" + name + "-" + cryptorand.Text()[:8]
	if err := os.Mkdir(filepath.Join(l.dir, "team"), 0o777); err != nil {
		return err
	}
	if err := l.Launch("head", "head", "--policy", l.policy, "--socket", socket, "--state", filepath.Join(l.dir, "head"), "--log-level", "warn", "--text-log"); err != nil {
		return err
	}
	var err error
	if l.head, err = client.Open("unix:"+socket, ""); err != nil {
		return err
	}
	if l.roam {
		if l.authority, _, err = gateway.OpenAuthority(filepath.Join(l.dir, "certs"), time.Now()); err != nil {
			return err
		}
	}
	// Start them one after the other, because the order in which they join is that of the cluster.
	for i := range l.hosts {
		if err := l.launchNode(&l.hosts[i], socket); err != nil {
			return err
		}
		if err := l.awaitNodes(ctx, i+1); err != nil {
			return err
		}
	}
	return nil
}

// awaitNodes waits until the given number of nodes have joined.
func (l *living) awaitNodes(ctx context.Context, count int) error {
	return until(ctx, patienceUp, fmt.Sprintf("node %d did not come", count), func() (bool, error) {
		nodes, err := l.head.Nodes(ctx)
		if errors.Is(err, client.ErrUnreachable) {
			return false, l.Lost()
		}
		here := 0
		for _, n := range nodes {
			if n.Connected {
				here++
			}
		}
		return here == count, errors.Join(err, l.Lost())
	})
}

func (l *living) launchNode(h *host, head string) error {
	file := filepath.Join(l.dir, h.name+".yaml")
	text := fmt.Sprintf("head: {address: \"unix:%s\", spool: %s, cores: %d, memory: %d}\n", head, filepath.Join(l.dir, h.name+".spool"), h.cores, nodeMemory)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	options := []string{"--config", file, "--name", h.name, "--state", filepath.Join(l.dir, h.name+".state"), "--devices", h.devices(), "--vgpus", "32"}
	if l.roam {
		lends, err := l.lending(h)
		if err != nil {
			return err
		}
		options = append(options, lends...)
	}
	return l.LaunchNode(h.name, head+"-"+h.name, options...)
}

// lending are the options with which a node moves programs, and borrows of all others.
func (l *living) lending(h *host) ([]string, error) {
	address := func(i int) string { return fmt.Sprintf("%s.%d", l.network, i+1) }
	self := slices.IndexFunc(l.hosts, func(o host) bool { return o.name == h.name })
	folder, err := l.authority.Node([]string{h.name, address(self)}, 1)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range l.hosts {
		if i != self {
			peers = append(peers, address(i))
		}
	}
	options := []string{"--migrate", "auto", "--listen", address(self) + ":9421", "--tls-dir", folder}
	if len(peers) > 0 {
		options = append(options, "--peers", strings.Join(peers, ","))
	}
	return options, nil
}

// stop ends the nodes, then the head, and removes their files. Tasks outlive their node: while one
// ends, it writes to the folder.
func (l *living) stop() {
	_ = l.Stop()
	for try := 0; os.RemoveAll(l.dir) != nil && try < 100; try++ {
		time.Sleep(50 * time.Millisecond)
	}
}

// until polls done until it returns true or an error, or until patience is used up.
func until(ctx context.Context, patience time.Duration, otherwise string, done func() (bool, error)) error {
	late := time.After(patience)
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-late:
			return fmt.Errorf("%s within %v", otherwise, patience)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// run submits jobs in order, waits until all have ended, and returns the head's records of them.
func (l *living) run(ctx context.Context, seed uint64, jobs []job) ([]api.Job, error) {
	ids := make([]uint64, len(jobs))
	for i := range jobs {
		answer, err := l.head.Submit(ctx, l.submission(&jobs[i], seed))
		if err != nil {
			return nil, fmt.Errorf("submitting %s: %w", &jobs[i], err)
		}
		ids[i] = answer.Job
	}
	var ended []api.Job
	err := until(ctx, patienceRun, "the jobs did not end", func() (bool, error) {
		all, err := l.head.Jobs(ctx, client.Query{})
		if err != nil {
			return false, err
		}
		ended = make([]api.Job, len(ids))
		over := 0
		for _, j := range all {
			if at := slices.Index(ids, j.ID); at >= 0 && j.State.Over() {
				ended[at] = j
				over++
			}
		}
		return over == len(ids), nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, l.waiting(ctx))
	}
	for i := range ended {
		if err := l.check(&jobs[i], &ended[i]); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// waiting describes the state of jobs that have not ended.
func (l *living) waiting(ctx context.Context) string {
	jobs, err := l.head.Jobs(context.WithoutCancel(ctx), client.Query{})
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, j := range jobs {
		if !j.State.Over() {
			all = append(all, fmt.Sprintf("job %d (%s) is %s: %s", j.ID, j.Name, j.State, j.Why))
		}
	}
	return strings.Join(all, "; ")
}

func (l *living) submission(j *job, seed uint64) *api.Submission {
	words := append([]string{filepath.Join(l.Tools.Programs, j.app.program)}, j.arguments(seed)...)
	words = append(words, "--team", filepath.Join(l.dir, "team"))
	return &api.Submission{Options: append(j.asks(), "-o", "job-%j.out"), Arguments: words, Directory: l.dir, Environment: bench.WithoutSettings(os.Environ())}
}

// outputOf is the output of a job's processes.
func (l *living) outputOf(id uint64) string {
	text, _ := os.ReadFile(filepath.Join(l.dir, fmt.Sprintf("job-%d.out", id)))
	return string(text)
}

// check says what is wrong with a job that has ended. Each of its processes must have reported that
// its results are right.
func (l *living) check(j *job, ended *api.Job) error {
	text := l.outputOf(ended.ID)
	if ended.State != api.Completed {
		return fmt.Errorf("%s ended as %s: %s\n%s", j, ended.State, ended.Why, text)
	}
	if got := strings.Count(text, " right, "); got != j.processes {
		return fmt.Errorf("%d of the %d processes of %s say that their results are right:\n%s", got, j.processes, j, text)
	}
	return nil
}
