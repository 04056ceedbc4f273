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

// Recorder writes down what a state is told, with the answers. After an error of the writer it writes
// no more; Err tells it.
type Recorder struct {
	state *policy.State
	w     io.Writer
	err   error
	// number is by ID the number in the file of jobs that were there before the
	// recording began; later ones have shift less than their ID.
	number map[policy.JobID]policy.JobID
	shift  policy.JobID
}

// Record begins a recording of a state with its header, and with what makes a
// fresh state what this one is. The header's cluster is that of the state. A recorder that the state
// had before hears no more.
func Record(w io.Writer, h Header, s *policy.State) *Recorder {
	r := &Recorder{state: s, w: w}
	r.number, r.err = snapshot(w, h, s)
	r.shift = s.NextID() - policy.JobID(len(r.number))
	s.SetRecorder(r.record)
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
	if id < r.shift || id >= r.state.NextID() {
		return -1
	}
	return id - r.shift
}

func (r *Recorder) record(e policy.Event, a policy.Answer) {
	if line := lineOf(e, a, r.numberOf); line != nil && r.err == nil {
		r.err = writeEvent(r.w, line)
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
			write(&changed{head: head{suspendedWord}, ID: number[j.ID]})
			if j.Stays {
				write(&changed{head: head{staysWord}, ID: number[j.ID]})
			}
			if j.Parked {
				write(&changed{head: head{parkedWord}, ID: number[j.ID]})
			}
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
	s.Jobs(func(j policy.JobState) {
		if j.Measured != (model.Measured{}) {
			write(&measured{head: head{measuredWord}, ID: number[j.ID], Measured: j.Measured})
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
	for n := range int32(len(s.Cluster().Nodes)) {
		if said := s.SettingsOf(n); !said.IsZero() {
			write(lineOf(policy.NodeConfigured{Node: n, Settings: said}, policy.Answer{}, nil))
		}
		if h := s.HeardOf(n); h != nil {
			write(lineOf(policy.NodeHeard{Node: n, Heard: *h}, policy.Answer{}, nil))
		}
	}
	return number, failed
}

// adoptedAgain is a job that holds something, and is expected to end at end.
func adoptedAgain(j *policy.JobState, number policy.JobID, end time.Duration) *adopted {
	started := end - j.Job.As(j.Alternative).Estimate()
	return &adopted{head: head{adoptWord}, Job: jobOf(j.Job), Alternative: j.Alternative, Alloc: allocationOf(j.Alloc), Started: int64(max(started, -latest)), ID: number}
}
