package mccs_test

import (
	"slices"
	"time"

	"muster/policy/mccs"
)

// listing is the policies of Listings 4-1 to 4-3 as programs of Go, with the settings
// that the bundled scripts have.
type listing struct {
	number int // of the listing
	bound  int
	even   bool
	apart  []string // names of the applications whose processes are not kept together
	short  time.Duration
	weigh  string
}

func (p *listing) Init(l *mccs.Library) error {
	if p.number > 1 {
		if err := l.SetWeights(p.weigh); err != nil {
			return err
		}
		l.SortNodes()
	}
	return l.SetCallBack(mccs.NewJobArrival, func(j *mccs.Job) error { return l.AddJob(j, l.UnassignedJobQueue) })
}

func (p *listing) Main(l *mccs.Library) error {
	waits := false
	for {
		j := l.RemoveJob(l.UnassignedJobQueue)
		if j == nil {
			break
		}
		placed, err := p.assign(l, j)
		if err != nil {
			return err
		}
		if placed {
			if placed, err = l.StartJob(j); err != nil {
				return err
			}
		}
		if placed {
			continue
		}
		if err := p.cannot(l, j, &waits); err != nil {
			return err
		}
	}
	if p.number < 3 || waits && p.somethingRuns(l) {
		return nil
	}
	for _, j := range l.Suspended() {
		if _, err := l.SetDeviceLimit(j, mccs.NoLimit); err != nil {
			return err
		}
	}
	return nil
}

func (p *listing) assign(l *mccs.Library, j *mccs.Job) (bool, error) {
	switch {
	case p.number == 1:
		return p.deal(l, j, l.GetNodesFor(j, mccs.AsListed, j.NumProcesses()))
	case p.number == 3 && j.Estimate() > p.short && p.returning(l):
		return false, nil
	case slices.Contains(p.apart, j.Name()):
		return p.spread(l, j)
	}
	return p.together(l, j)
}

// returning says that a job is suspended whose nodes are up: it comes first.
func (p *listing) returning(l *mccs.Library) bool {
	return slices.ContainsFunc(l.Suspended(), func(j *mccs.Job) bool {
		return !slices.ContainsFunc(j.Nodes(), func(o mccs.OnNode) bool { return !l.PingNode(o.Node) })
	})
}

func (p *listing) somethingRuns(l *mccs.Library) bool {
	return slices.ContainsFunc(l.AssignedJobQueue.List(), func(j *mccs.Job) bool { return !j.Suspended() })
}

// deal gives nodes one process after the other.
func (p *listing) deal(l *mccs.Library, j *mccs.Job, nodes []*mccs.Node) (bool, error) {
	for more := true; more && j.RemainingProcesses() > 0; {
		more = false
		for _, n := range nodes {
			took, err := l.AddNodeToJob(j, n, 1)
			if err != nil {
				return false, err
			}
			more = more || took > 0
		}
	}
	return j.RemainingProcesses() == 0, nil
}

func (p *listing) together(l *mccs.Library, j *mccs.Job) (bool, error) {
	for _, by := range []mccs.Order{mccs.ByAvailable, mccs.ByRoom} {
		nodes := l.GetNodesFor(j, by, max(p.bound, l.MinNodes(j)))
		if !p.even {
			for _, n := range nodes {
				if _, err := l.AddNodeToJob(j, n, l.Available(n, j)); err != nil {
					return false, err
				}
			}
		}
		if ok, err := p.deal(l, j, nodes); ok || err != nil {
			return ok, err
		}
		if err := l.RemoveAllNodesFromJob(j); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (p *listing) spread(l *mccs.Library, j *mccs.Job) (bool, error) {
	nodes, total := l.GetNodesFor(j, mccs.AsListed, 0), 0
	for _, n := range nodes {
		a := l.Available(n, j)
		if a <= 0 {
			continue
		}
		total += a
		if _, err := l.AddNodeToJob(j, n, a); err != nil {
			return false, err
		}
	}
	if total == 0 {
		return false, nil
	}
	return p.deal(l, j, nodes)
}

func (p *listing) cannot(l *mccs.Library, j *mccs.Job, waits *bool) error {
	if err := l.RemoveAllNodesFromJob(j); err != nil {
		return err
	}
	switch {
	case p.number == 1:
		return l.AddJobToHead(j, l.UnassignedJobQueue)
	case p.number == 2 || j.Estimate() > p.short:
		return l.AddJobUntilFits(j, l.UnassignedJobQueue)
	}
	*waits = true
	if err := l.AddJobToHead(j, l.UnassignedJobQueue); err != nil {
		return err
	}
	var long []*mccs.Job
	for _, o := range l.AssignedJobQueue.List() {
		if o.Limit() != 0 && o.Estimate() > p.short {
			long = append(long, o)
		}
	}
	if len(long) == 0 {
		return nil
	}
	if helps, err := l.WouldFit(j, long); err != nil || !helps {
		return err
	}
	for _, o := range long {
		if _, err := l.SetDeviceLimit(o, 0); err != nil {
			return err
		}
	}
	return nil
}
