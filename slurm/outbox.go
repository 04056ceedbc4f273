package slurm

import (
	"fmt"

	"muster/model"
	"muster/slurm/words"
)

// outbox is what the driver is to do, until it takes it, and what it has done.
type outbox struct {
	effects Effects
	counts  Counts
}

// Place asks for a job to be placed on exactly these nodes and released.
type Place struct {
	Job   Ref
	Nodes []string
	// CPUsPerNode is pinned for each node; otherwise Slurm would divide the processors as it likes.
	CPUsPerNode int
	// Comment is the job's new comment.
	Comment string
	// Start is how often Slurm had restarted the job; User and UID are its owner.
	Start int
	User  string
	UID   int
	// As is what the job asks for from now on; nil if that stays as it is.
	As *Change
	// Borrows are, for each of Nodes, the GPUs that are lent to the programs there; nil if there
	// are none.
	Borrows [][]Borrow
}

// Borrow is a GPU that is lent to a job.
type Borrow struct {
	words.Device
	// Memory is the share in bytes; 0 is the whole GPU.
	Memory int64
	Hold   model.Hold
}

// Say asks for an action that comes with a new comment.
type Say struct {
	Job     Ref
	Comment string
}

// Split asks for tasks to be taken out of an array.
type Split struct {
	Array uint64
	Tasks []int
	// Contiguous is what the array asks for, and so what each task must ask for.
	Contiguous bool
}

// Effects are what the driver must do. It must report the fate of each, except Comments, with Told.
type Effects struct {
	Places    []Place
	Recalls   []Ref
	Handovers []Say
	Splits    []Split
	Comments  []Say
	Stops     []Stop
	// Resumes let suspended jobs continue, with their new comments.
	Resumes []Say
	// Notes are for the log.
	Notes []string
}

// Fate is the outcome of a request to Slurm.
type Fate uint8

// The fates of requests.
const (
	Done    Fate = iota
	Refused      // Slurm did nothing
	Unknown      // it is not known whether Slurm did it
)

func (o *outbox) note(format string, args ...any) {
	o.effects.Notes = append(o.effects.Notes, fmt.Sprintf(format, args...))
}
