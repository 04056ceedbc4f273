package demo

import (
	"fmt"
	"slices"
	"strings"

	"muster/device/remote"
	headclient "muster/head/client"
	"muster/node/ask"
	"muster/wire/api"
	"muster/wire/status"
)

// seen is what was seen of the cluster, also of what is over.
type seen struct {
	nodes   []api.Node
	jobs    []*seenJob
	clients map[string]status.Client // by node and number
	status  map[string]*status.Node  // the last of each node
	busy    map[string]float64       // of devices of daemons that were killed, by place
}

// seenJob is one job with all its attempts.
type seenJob struct {
	api.Job
	on        []string // its nodes, an entry each attempt
	lost      float64  // seconds of attempts that came to nothing
	suspended bool     // at any time
}

func newSeen() *seen {
	return &seen{clients: map[string]status.Client{}, status: map[string]*status.Node{}, busy: map[string]float64{}}
}

// look asks the head and the nodes for their status. One that does not answer
// is asked again the next time.
func (d *tour) look() {
	if nodes, err := d.head.Nodes(d.ctx); err == nil {
		d.seen.nodes = nodes
	}
	if jobs, err := d.head.Jobs(d.ctx, headclient.Query{}); err == nil {
		for i := range jobs {
			d.seen.note(jobs[i])
		}
	}
	for _, m := range d.machines {
		if m.daemon == nil {
			continue
		}
		if s, err := ask.Status(m.socket); err == nil {
			d.seen.noteNode(m.name, s)
		}
	}
	if d.live != nil {
		d.live.draw(d)
	}
}

func (s *seen) note(j api.Job) {
	at := slices.IndexFunc(s.jobs, func(k *seenJob) bool { return k.ID == j.ID })
	if at < 0 {
		at = len(s.jobs)
		s.jobs = append(s.jobs, &seenJob{})
	}
	k := s.jobs[at]
	if j.Requeues > k.Requeues {
		k.lost += k.Elapsed
	}
	k.Job = j
	k.suspended = k.suspended || j.State == api.Suspended
	if attempt := int(j.Attempt); attempt > len(k.on) && j.NodeList != "" {
		k.on = append(k.on, j.NodeList)
	}
}

func (s *seen) noteNode(name string, now *status.Node) {
	s.status[name] = now
	for _, c := range slices.Concat(now.Clients, now.Ended) {
		s.clients[fmt.Sprint(name, " ", c.ID)] = c
	}
}

// lose keeps what a node had counted whose daemon was killed.
func (s *seen) lose(name string) {
	if now := s.status[name]; now != nil {
		for i, device := range now.Devices {
			s.busy[place(name, i)] += device.BusyTime
		}
	}
	delete(s.status, name)
}

// place names a device as jobs do.
func place(node string, device int) string { return fmt.Sprintf("%s:%d", node, device) }

// nodesUp counts the nodes that take jobs.
func (s *seen) nodesUp() (n int) {
	for _, node := range s.nodes {
		if node.Connected && node.State != api.NodeDown {
			n++
		}
	}
	return n
}

func (s *seen) named(name string) (list []*seenJob) {
	for _, j := range s.jobs {
		if j.Name == name {
			list = append(list, j)
		}
	}
	return list
}

// array is the number of the array of a name.
func (s *seen) array(name string) uint64 {
	for _, j := range s.named(name) {
		return j.ArrayJob
	}
	return 0
}

// over counts the jobs of a name that have ended.
func (s *seen) over(name string) (n int) {
	for _, j := range s.named(name) {
		if j.State.Over() {
			n++
		}
	}
	return n
}

// requeued says whether a job was started, and then put back.
func (s *seen) requeued(name string) bool {
	return slices.ContainsFunc(s.named(name), func(j *seenJob) bool { return j.Requeues > 0 })
}

// programs are the clients of a job, of all its attempts.
func (s *seen) programs(j *seenJob) (list []status.Client) {
	grant := fmt.Sprintf("%d.", j.ID)
	for _, c := range s.clients {
		if strings.HasPrefix(c.Grant, grant) {
			list = append(list, c)
		}
	}
	return list
}

// count is how many programs a job had. One on a GPU that its node has of another node is known to that one, too.
func (s *seen) count(j *seenJob) (n int) {
	for _, c := range s.programs(j) {
		if !strings.HasPrefix(c.Program, remote.LentTo) {
			n++
		}
	}
	return n
}

// kernels counts those of a job's programs on the GPUs of a node that run now.
func (s *seen) kernels(name, on string) (n uint64) {
	now := s.status[on]
	if now == nil {
		return 0
	}
	for _, j := range s.named(name) {
		for _, c := range now.Clients {
			if strings.HasPrefix(c.Grant, fmt.Sprintf("%d.", j.ID)) {
				n += c.Kernels
			}
		}
	}
	return n
}

// swapped is how many bytes of a job's programs left a GPU for others: moved there, or brought back, where recovery
// had a copy on the host already.
func (s *seen) swapped(j *seenJob) (n uint64) {
	for _, c := range s.programs(j) {
		n += max(c.SwapOut, c.SwapIn)
	}
	return n
}

// others are the jobs that had a GPU of this one at the same time.
func (s *seen) others(j *seenJob) (list []*seenJob) {
	for _, k := range s.jobs {
		if k != j && k.Start < j.End && j.Start < k.End && slices.ContainsFunc(k.Devices, func(d api.Device) bool { return hasDevice(j, d) }) {
			list = append(list, k)
		}
	}
	return list
}

func hasDevice(j *seenJob, d api.Device) bool {
	return slices.ContainsFunc(j.Devices, func(own api.Device) bool { return own.Node == d.Node && own.Device == d.Device })
}

// span is from the first submission to the last end, in the head's time.
func (s *seen) span() (begin, end float64) {
	for i, j := range s.jobs {
		if i == 0 || j.Submit < begin {
			begin = j.Submit
		}
		end = max(end, j.End)
	}
	return begin, end
}

// devices are those of a node, as it was last seen.
func (s *seen) devices(name string) []status.Device {
	if now := s.status[name]; now != nil {
		return now.Devices
	}
	return nil
}
