package question

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"muster/internal/misuse"
	"muster/policy/scriptfile"
	"muster/sim"
	"muster/workload"
)

// The cluster and the log that scripts are tried on unless the user names others. Both come with
// Muster.
const (
	TryCluster  = "small"
	TryWorkload = "small"
)

// CheckScript loads a script and runs it on the small cluster and log, so that slips which only show
// when it decides are found too.
func CheckScript(ctx context.Context, spec string, file scriptfile.Read) (*scriptfile.Loaded, error) {
	if err := MustBeScript(spec); err != nil {
		return nil, err
	}
	q := Jobs{Cluster: TryCluster, Workload: TryWorkload, Bundled: true, Policies: spec, Seeds: "1", Traffic: TrafficAsLogged, Workers: 1, Scripts: Scripts{File: file}}
	l, err := scriptfile.Load(spec, q.Scripts.read)
	if err != nil {
		return nil, err
	}
	s, err := q.Sweep()
	if err != nil {
		return nil, err
	}
	if _, _, err := q.Read(s, strings.NewReader(""), workload.ReadOptions{}); err != nil {
		return nil, err
	}
	if _, err := s.Run(ctx); err != nil {
		return nil, whyStuck(spec, l.Source, err)
	}
	return l, q.Scripts.failure()
}

// failure is that of a script that failed; nil if none did.
func (s *Scripts) failure() error {
	for _, p := range s.made {
		if t := p.Trouble(); t.Last != nil {
			return t.Last
		}
	}
	return nil
}

// whyStuck says what to do about a script that does not start all jobs of the small log.
func whyStuck(spec string, source []byte, err error) error {
	var stuck *sim.StuckError
	if !errors.As(err, &stuck) {
		return err
	}
	advice := "decide must call plan.start for every job in the end; for one that is to wait until some time, call plan.wake with it"
	if bytes.Contains(source, []byte("def init(")) {
		advice = "put jobs that arrive into a queue (mccsSetCallBack with NewJobArrival, mccsAddJob), and take, place and start them in main or a callback"
	}
	return fmt.Errorf("%s left %d jobs of the small log waiting for ever on an idle cluster; of the first: %s\n%s", spec, stuck.Jobs, stuck.First, advice)
}

// MustBeScript refuses a policy that is no script.
func MustBeScript(spec string) error {
	if scriptfile.Is(spec) {
		return nil
	}
	return misuse.Errorf("%s is no script: the name of its file must end in .star", spec)
}
