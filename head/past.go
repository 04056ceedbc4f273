package head

import (
	"encoding/json"

	"muster/head/record"
	"muster/internal/indexset"
	"muster/internal/strictjson"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// Past is how a job, or the tasks of an array, ended that the core has forgotten.
type Past struct {
	State api.State
	// Ends is how an array's tasks ended; nil for a single job.
	Ends *Ends
}

// PastOf reads how a job, or the tasks of an array, ended; get reads a record, and returns nil if there
// is none.
func PastOf(job uint64, get func(Bucket, uint64) []byte) (past Past, known bool, err error) {
	if value := get(Arrays, job); value != nil {
		past.Ends, err = DecodeEnds(value)
		return past, err == nil, err
	}
	value := get(Ended, job)
	if value == nil {
		return past, false, nil
	}
	var ended struct {
		State api.State `json:"state"`
	}
	err = json.Unmarshal(value, &ended)
	return Past{State: ended.State}, err == nil, err
}

// Ends is how the tasks of an array ended: its record in the store.
type Ends struct {
	Tasks string `json:"tasks"` // all task numbers, as --array reads them; the task at place i is job number array+i
	// OK and Bad are the places of the tasks that have ended: completed, and all others.
	OK  indexset.Set `json:"ok"`
	Bad indexset.Set `json:"bad"`
	// Rests are the numbers under which tasks ended together that never started.
	Rests []uint64 `json:"rests,omitempty"`

	tasks slurmopt.Tasks
}

// DecodeEnds reads the record of an array.
func DecodeEnds(value []byte) (*Ends, error) {
	e := &Ends{}
	err := strictjson.Decode(value, e)
	if err == nil {
		e.tasks, err = slurmopt.ParseTasks(e.Tasks)
	}
	return e, err
}

// EndsOf is the record of an array of which no task has ended, from its options; nil if these are not
// those of an array.
func EndsOf(options string) *Ends {
	said, err := slurmopt.ParseSubmitted(options)
	if err != nil || said.Batch.Array == nil {
		return nil
	}
	return &Ends{Tasks: said.Batch.Array.Tasks.String(), tasks: said.Batch.Array.Tasks}
}

// Add notes how the task at a place has ended.
func (e *Ends) Add(place int, s api.State) {
	if s == api.Completed {
		e.OK.Add(place)
	} else {
		e.Bad.Add(place)
	}
}

// Place is the place of a task; false if the array has none with this number.
func (e *Ends) Place(task int64) (int, bool) { return e.tasks.Place(task) }

// Task is the task at a place; false if there is none.
func (e *Ends) Task(place uint64) (uint32, bool) {
	if place >= uint64(e.tasks.Len()) {
		return 0, false
	}
	return e.tasks.At(int(place)), true
}

// Ended reads the record of a task that has ended; nil if it has not. Tasks that ended together have
// one record in the store.
func (e *Ends) Ended(array uint64, place int, get func(Bucket, uint64) []byte) (*record.Ended, error) {
	task, ok := e.Task(uint64(place))
	if !ok || !e.OK.Has(place) && !e.Bad.Has(place) {
		return nil, nil
	}
	for _, number := range append([]uint64{array + uint64(place)}, e.Rests...) {
		value := get(Ended, number)
		if value == nil {
			continue
		}
		d, err := record.ReadEnded(value)
		if err != nil {
			return nil, err
		}
		if d.ArrayTasks == "" {
			if number == array+uint64(place) {
				return d, nil
			}
			continue
		}
		if tasks, err := slurmopt.ParseTasks(d.ArrayTasks); err != nil {
			return nil, err
		} else if _, in := tasks.Place(int64(task)); in {
			d.ID, d.ArrayTask, d.ArrayTasks, d.ArrayCount = array+uint64(place), &task, "", 0
			return d, nil
		}
	}
	return nil, nil
}
