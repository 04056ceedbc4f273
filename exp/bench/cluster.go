package bench

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

	"muster/head/client"
	"muster/node/ask"
	"muster/node/gateway"
	"muster/wire/api"
)

// Host is a node of a cluster to be started.
type Host struct {
	Name    string
	Cores   int
	Devices string // as for muster node --devices
}

// ClusterSpec is a cluster to be started.
type ClusterSpec struct {
	Policy string
	Hosts  []Host
	Memory int64 // of each node
	// Lend has the nodes lend their GPUs to each other: by need, and to jobs that the policy lets borrow. Their
	// runtimes then move programs to faster and emptier GPUs, as far as the jobs' grants reach.
	Lend bool
}

// Cluster is a head and nodes that run, each a process of this executable.
type Cluster struct {
	ClusterSpec
	Daemons
	Dir string // for files of the jobs; it goes with the cluster

	socket    string // the head's; those of nodes add their names
	head      *client.Head
	authority *gateway.Authority // that vouches for nodes which lend
	network   string             // the first bytes of their addresses on the loopback interface
}

// patienceUp limits the time for a cluster to start, and patienceRun that for a run of jobs.
const (
	patienceUp  = time.Minute
	patienceRun = 5 * time.Minute
)

// StartCluster starts a head and nodes, and waits until the nodes have joined. The name is part of those of its
// socket and folder.
func StartCluster(ctx context.Context, t Tools, name string, spec ClusterSpec) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "muster-"+name+"-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{ClusterSpec: spec, Daemons: Daemons{Tools: t}, Dir: dir, socket: "@muster-" + name + "-" + cryptorand.Text()[:8], network: fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(255))}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("%w\n%s", err, c.Logs())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	options := []string{"head", "--page", "none", "--policy", c.Policy, "--socket", c.socket, "--state", filepath.Join(c.Dir, "head"), "--log-level", "warn", "--text-log"}
	if c.Lend {
		certificates := filepath.Join(c.Dir, "certs")
		var err error
		if c.authority, _, err = gateway.OpenAuthority(certificates, time.Now()); err != nil {
			return err
		}
		folder, err := c.authority.Head([]string{"head", c.address(0)}, 1)
		if err != nil {
			return err
		}
		options = append(options, "--listen", "", "--tls-dir", folder) // the head tells jobs who vouches for nodes that lend
	}
	if err := c.Launch("head", options...); err != nil {
		return err
	}
	var err error
	if c.head, err = client.Open("unix:"+c.socket, ""); err != nil {
		return err
	}
	// Start them one after the other, because the order in which they join is that of the cluster.
	for i := range c.Hosts {
		if err := c.launchNode(i); err != nil {
			return err
		}
		if err := c.awaitNodes(ctx, i+1); err != nil {
			return err
		}
	}
	return nil
}

// address is that of the nth host, counted from 1.
func (c *Cluster) address(n int) string { return fmt.Sprintf("%s.%d", c.network, n+1) }

// awaitNodes waits until the given number of nodes have joined.
func (c *Cluster) awaitNodes(ctx context.Context, count int) error {
	return until(ctx, patienceUp, fmt.Sprintf("node %d did not come", count), func() (bool, error) {
		nodes, err := c.head.Nodes(ctx)
		if errors.Is(err, client.ErrUnreachable) {
			return false, c.Lost()
		}
		here := 0
		for _, n := range nodes {
			if n.Connected {
				here++
			}
		}
		return here == count, errors.Join(err, c.Lost())
	})
}

func (c *Cluster) launchNode(i int) error {
	h := &c.Hosts[i]
	file := filepath.Join(c.Dir, h.Name+".yaml")
	text := fmt.Sprintf("head: {address: \"unix:%s\", spool: %s, cores: %d, memory: %d}\n", c.socket, filepath.Join(c.Dir, h.Name+".spool"), h.Cores, c.Memory)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	options := []string{"--config", file, "--name", h.Name, "--state", filepath.Join(c.Dir, h.Name+".state"), "--devices", h.Devices, "--vgpus", "32"}
	if c.Lend {
		lends, err := c.lending(i)
		if err != nil {
			return err
		}
		options = append(options, lends...)
	}
	return c.LaunchNode(h.Name, c.socket+"-"+h.Name, options...)
}

// lending are the options with which a node moves programs, and borrows of all others.
func (c *Cluster) lending(i int) ([]string, error) {
	folder, err := c.authority.Node([]string{c.Hosts[i].Name, c.address(i + 1)}, 1)
	if err != nil {
		return nil, err
	}
	var peers []string
	for o := range c.Hosts {
		if o != i {
			peers = append(peers, c.address(o+1))
		}
	}
	options := []string{"--migrate", "auto", "--listen", c.address(i+1) + ":9421", "--tls-dir", folder}
	if len(peers) > 0 {
		options = append(options, "--peers", strings.Join(peers, ","))
	}
	return options, nil
}

// Moves is how often programs have gone to faster or emptier GPUs by themselves, on all nodes since they were
// started.
func (c *Cluster) Moves() (moves int, err error) {
	for i := range c.Hosts {
		s, err := ask.Status(c.socket + "-" + c.Hosts[i].Name)
		if err != nil {
			return 0, err
		}
		for _, c := range slices.Concat(s.Clients, s.Ended) {
			moves += int(c.Moves.Auto)
		}
	}
	return moves, nil
}

// Stop ends the nodes, then the head, and removes their files. Tasks outlive their node: while one
// ends, it writes to the folder.
func (c *Cluster) Stop() {
	_ = c.Daemons.Stop()
	for try := 0; os.RemoveAll(c.Dir) != nil && try < 100; try++ {
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

// Run submits jobs in order, waits until all have ended, and returns the head's records of them. Each runs in
// the cluster's folder, with its output in a file of its own (Output).
func (c *Cluster) Run(ctx context.Context, jobs []*api.Submission) ([]api.Job, error) {
	ids := make([]uint64, len(jobs))
	for i, j := range jobs {
		j.Options = append(slices.Clone(j.Options), "-o", "job-%j.out")
		j.Directory, j.Environment = c.Dir, WithoutSettings(os.Environ())
		answer, err := c.head.Submit(ctx, j)
		if err != nil {
			c.abandon(ctx, ids[:i])
			return nil, fmt.Errorf("submitting %s: %w", strings.Join(j.Options, " "), err)
		}
		ids[i] = answer.Job
	}
	ended := make([]api.Job, len(ids))
	err := until(ctx, patienceRun, "the jobs did not end", func() (bool, error) {
		all, err := c.head.Jobs(ctx, client.Query{})
		if err != nil {
			return false, err
		}
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
		waiting := c.Waiting(ctx)
		c.abandon(ctx, ids)
		return nil, fmt.Errorf("%w: %s", err, waiting)
	}
	return ended, nil
}

// patienceGone limits the time for jobs to end that are cancelled.
const patienceGone = 10 * time.Second

// abandon cancels jobs, and waits until their processes are gone: these would outlive their nodes.
func (c *Cluster) abandon(ctx context.Context, ids []uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patienceGone)
	defer cancel()
	for _, id := range ids {
		_, _ = c.head.Cancel(ctx, fmt.Sprint(id), "") // it may have ended
	}
	_ = until(ctx, patienceGone, "", func() (bool, error) { return c.Waiting(ctx) == "", ctx.Err() })
}

// Waiting describes the state of jobs that have not ended.
func (c *Cluster) Waiting(ctx context.Context) string {
	jobs, err := c.head.Jobs(context.WithoutCancel(ctx), client.Query{})
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

// Output is what a job's processes have printed.
func (c *Cluster) Output(id uint64) string {
	text, _ := os.ReadFile(filepath.Join(c.Dir, fmt.Sprintf("job-%d.out", id)))
	return string(text)
}
