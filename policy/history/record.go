package history

import (
	"encoding/json"
	"io"
	"time"

	"muster/model"
	"muster/policy"
)

// Version is that of the format.
const Version = 1

// Header is the first line of a history.
type Header struct {
	// Policy is the spec that makes the policy.
	Policy string
	// Muster is the version of the program that wrote it, and Note what it says
	// about itself; both may be empty.
	Muster, Note string
	// Cluster is the machine at the beginning.
	Cluster *model.Cluster
}

type headerLine struct {
	Version int     `json:"history"`
	Muster  string  `json:"muster,omitempty"`
	Note    string  `json:"note,omitempty"`
	Policy  string  `json:"policy"`
	Cluster cluster `json:"cluster"`
}

// Recorder stands in for a state: it passes on what it is told, and writes it down
// with the answer. After an error of the writer it writes no more; Err tells it.
type Recorder struct {
	*policy.State
	w   io.Writer
	err error
	// number is by ID the number in the file of jobs that were there before the
	// recording began; later ones have shift less than their ID.
	number map[policy.JobID]policy.JobID
	shift  policy.JobID
}

// Record begins a recording of a state with its header, and with what makes a
// fresh state what this one is. The header's cluster is that of the state.
func Record(w io.Writer, h Header, s *policy.State) *Recorder {
	r := &Recorder{State: s, w: w}
	r.number, r.err = snapshot(w, h, s)
	r.shift = s.NextID() - policy.JobID(len(r.number))
	return r
}

// Err is the first error of the writer.
func (r *Recorder) Err() error { return r.err }

// numberOf is a job's number in the file. Those that are no job of the state are
// none there either.
func (r *Recorder) numberOf(id policy.JobID) policy.JobID {
	if n, early := r.number[id]; early {
		return n
	}
	if id < r.shift || id >= r.NextID() {
		return -1
	}
	return id - r.shift
}

func (r *Recorder) write(e event) {
	if r.err == nil {
		r.err = writeEvent(r.w, e)
	}
}

func writeEvent(w io.Writer, e event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// tell passes on and writes what concerns one job.
func (r *Recorder) tell(what string, id policy.JobID) error {
	err := tell(r.State, what, id)
	r.write(&told{head: head{what}, ID: r.numberOf(id), answer: answer{text(err)}})
	return err
}

// Submit is that of the state.
func (r *Recorder) Submit(j *model.Job) (policy.JobID, error) {
	id, err := r.State.Submit(j)
	r.write(&submitted{head: head{submitWord}, Job: jobOf(j), ID: r.numberOf(id), answer: answer{text(err)}})
	return id, err
}

// Adopt is that of the state.
func (r *Recorder) Adopt(j *model.Job, alternative int, a *model.Allocation, started time.Duration) (policy.JobID, error) {
	id, err := r.State.Adopt(j, alternative, a, started)
	r.write(&adopted{head: head{adoptWord}, Job: jobOf(j), Alternative: alternative, Alloc: allocationOf(a), Started: int64(started), ID: r.numberOf(id), answer: answer{text(err)}})
	return id, err
}

// Cancel is that of the state.
func (r *Recorder) Cancel(id policy.JobID) error { return r.tell(cancelWord, id) }

// End is that of the state.
func (r *Recorder) End(id policy.JobID) error { return r.tell(endWord, id) }

// Requeue is that of the state.
func (r *Recorder) Requeue(id policy.JobID) error { return r.tell(requeueWord, id) }

// Suspended is that of the state.
func (r *Recorder) Suspended(id policy.JobID) error { return r.tell(suspendedWord, id) }

// Resumed is that of the state.
func (r *Recorder) Resumed(id policy.JobID) error { return r.tell(resumedWord, id) }

// Rank is that of the state.
func (r *Recorder) Rank(id policy.JobID, rank int64) error {
	err := r.State.Rank(id, rank)
	r.write(&ranked{head: head{rankWord}, ID: r.numberOf(id), Rank: rank, answer: answer{text(err)}})
	return err
}

// AddNode is that of the state.
func (r *Recorder) AddNode(n model.Node, types ...model.GPUType) (int32, error) {
	i, err := r.State.AddNode(n, types...)
	r.write(&nodeAdded{head: head{addNodeWord}, Node: nodeOf(&n), Types: typesOf(types), Number: i, answer: answer{text(err)}})
	return i, err
}

// AddDevices is that of the state.
func (r *Recorder) AddDevices(n int32, gpus []int, types ...model.GPUType) error {
	err := r.State.AddDevices(n, gpus, types...)
	r.write(&devicesAdded{head: head{addDevicesWord}, Number: n, GPUs: gpus, Types: typesOf(types), answer: answer{text(err)}})
	return err
}

// SetNode is that of the state.
func (r *Recorder) SetNode(n int32, st policy.NodeState) error {
	err := r.State.SetNode(n, st)
	if st <= policy.NodeDown {
		r.write(&nodeSet{head: head{setNodeWord}, Number: n, State: st.String(), answer: answer{text(err)}})
	}
	return err
}

// SetDevice is that of the state.
func (r *Recorder) SetDevice(n, device int32, up bool) error {
	err := r.State.SetDevice(n, device, up)
	r.write(&deviceSet{head: head{setDeviceWord}, Number: n, Device: device, Up: up, answer: answer{text(err)}})
	return err
}

// SetWindows is that of the state.
func (r *Recorder) SetWindows(list []policy.Window) error {
	err := r.State.SetWindows(list)
	r.write(&windowsSet{head: head{setWindowsWord}, Windows: windowsOf(list), answer: answer{text(err)}})
	return err
}

// Step is that of the state.
func (r *Recorder) Step(now time.Duration) *policy.Plan {
	p := r.State.Step(now)
	r.write(&stepped{head: head{stepWord}, At: int64(now), Plan: planOf(p, r.numberOf)})
	return p
}

// Snapshot writes a history that makes a fresh state what this one is: its nodes,
// its queue, and what runs. What led there is left out, so a policy that remembers more
// than the view shows, as what it has learned or drawn, may go on otherwise.
func Snapshot(w io.Writer, h Header, s *policy.State) error {
	_, err := snapshot(w, h, s)
	return err
}

// snapshot also returns the numbers of the jobs in the file.
func snapshot(w io.Writer, h Header, s *policy.State) (map[policy.JobID]policy.JobID, error) {
	header, err := json.Marshal(headerLine{Version, h.Muster, h.Note, h.Policy, clusterOf(s.Cluster())})
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(append(header, '\n')); err != nil {
		return nil, err
	}
	number := map[policy.JobID]policy.JobID{}
	var failed error
	write := func(e event) {
		if failed == nil {
			failed = writeEvent(w, e)
		}
	}
	if list := s.Windows(); len(list) > 0 {
		write(&windowsSet{head: head{setWindowsWord}, Windows: windowsOf(list)})
	}
	// Suspended jobs come first: others may have what they had.
	s.Jobs(func(j policy.JobState) {
		if j.Suspended {
			number[j.ID] = policy.JobID(len(number))
			write(adoptedAgain(&j, number[j.ID], j.Left))
			write(&told{head: head{suspendedWord}, ID: number[j.ID]})
		}
	})
	s.Jobs(func(j policy.JobState) {
		switch {
		case j.Suspended:
			return
		case j.Waiting:
			number[j.ID] = policy.JobID(len(number))
			write(&submitted{head: head{submitWord}, Job: jobOf(j.Job), ID: number[j.ID]})
		default:
			number[j.ID] = policy.JobID(len(number))
			write(adoptedAgain(&j, number[j.ID], j.ExpectedEnd))
		}
	})
	ranks := make([]int64, len(number))
	s.Jobs(func(j policy.JobState) { ranks[number[j.ID]] = j.Rank })
	for n, rank := range ranks {
		if rank != 0 {
			write(&ranked{head: head{rankWord}, ID: policy.JobID(n), Rank: rank})
		}
	}
	for n := range int32(len(s.Cluster().Nodes)) {
		for d := range int32(len(s.Cluster().Nodes[n].GPUs)) {
			if !s.DeviceUp(n, d) {
				write(&deviceSet{head: head{setDeviceWord}, Number: n, Device: d})
			}
		}
		if st := s.NodeState(n); st != policy.NodeUp {
			write(&nodeSet{head: head{setNodeWord}, Number: n, State: st.String()})
		}
	}
	return number, failed
}

// adoptedAgain is a job that holds something, and is expected to end at end.
func adoptedAgain(j *policy.JobState, number policy.JobID, end time.Duration) *adopted {
	started := end - j.Job.As(j.Alternative).Estimate()
	return &adopted{head: head{adoptWord}, Job: jobOf(j.Job), Alternative: j.Alternative, Alloc: allocationOf(j.Alloc), Started: int64(max(started, -latest)), ID: number}
}
