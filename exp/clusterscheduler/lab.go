package clusterscheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"muster/exp/bench"
	"muster/model"
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

// reach is how far a job's processes may go: anywhere, or nowhere.
func (s *setting) reach() model.Reach {
	if s.roam {
		return model.ReachCluster
	}
	return model.ReachDevice
}

// living is a running cluster.
type living struct {
	setting
	*bench.Cluster
}

// startCluster starts a head and nodes, and waits until the nodes have joined.
func startCluster(ctx context.Context, t bench.Tools, s setting) (*living, error) {
	spec := bench.ClusterSpec{Policy: s.policy, Memory: nodeMemory, Lend: s.roam}
	for _, h := range s.hosts {
		spec.Hosts = append(spec.Hosts, bench.Host{Name: h.name, Cores: h.cores, Devices: h.devices()})
	}
	up, err := bench.StartCluster(ctx, t, name, spec)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(up.Dir, team), 0o777); err != nil {
		up.Stop()
		return nil, err
	}
	return &living{s, up}, nil
}

// team is the folder in which the processes of a job find each other.
const team = "team"

// run submits jobs in order, waits until all have ended, and returns the head's records of them.
func (l *living) run(ctx context.Context, seed uint64, jobs []job) ([]api.Job, error) {
	var list []*api.Submission
	for i := range jobs {
		list = append(list, l.submission(&jobs[i], seed))
	}
	ended, err := l.Run(ctx, list)
	if err != nil {
		return nil, err
	}
	for i := range ended {
		if err := l.check(&jobs[i], &ended[i]); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

func (l *living) submission(j *job, seed uint64) *api.Submission {
	words := append([]string{filepath.Join(l.Tools.Programs, j.app.program)}, j.arguments(seed)...)
	return &api.Submission{Options: j.asks(), Arguments: append(words, "--team", filepath.Join(l.Dir, team))}
}

// check says what is wrong with a job that has ended. Each of its processes must have reported that
// its results are right.
func (l *living) check(j *job, ended *api.Job) error {
	text := l.Output(ended.ID)
	if ended.State != api.Completed {
		return fmt.Errorf("%s ended as %s: %s\n%s", j, ended.State, ended.Why, text)
	}
	if got := strings.Count(text, " right, "); got != j.processes {
		return fmt.Errorf("%d of the %d processes of %s say that their results are right:\n%s", got, j.processes, j, text)
	}
	return nil
}
