package packing

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"muster/model"
)

// thousand is a whole device: what is left of devices is counted in thousandths.
const thousand = 1000

// taskKey is what a task asks of its node; tasks that ask for the same are one.
type taskKey struct {
	cores, gpus int
	share       int64  // memory of each GPU; 0 is the whole device
	types       string // that would do, sorted, with | between; empty: any
}

// Census counts what tasks ask for: the popularity of each in a workload.
type Census struct {
	counts map[taskKey]int64
	jobs   int
}

// Add counts a job: a task for each of its nodes. Alternatives that differ in the
// type of their GPUs alone make one task that several types would do for. Jobs
// whose cores may be anywhere are no tasks of a node, and are not counted.
func (c *Census) Add(j *model.Job) {
	c.jobs++
	r := &j.Request
	if r.Nodes == 0 {
		return
	}
	key := taskKey{cores: r.CoresOnNode(), gpus: r.GPUs, share: r.GPUMemory}
	if r.GPUs > 0 {
		var types []string
		for _, i := range sameButType(j, 0) {
			t := request(j, i).GPUType
			if t == "" {
				types = nil
				break
			}
			types = append(types, t)
		}
		slices.Sort(types)
		key.types = strings.Join(slices.Compact(types), "|")
	}
	if c.counts == nil {
		c.counts = map[taskKey]int64{}
	}
	c.counts[key] += int64(r.Nodes)
}

// request is one of a job's requests; 0 is the main one.
func request(j *model.Job, alternative int) *model.Request {
	if alternative == 0 {
		return &j.Request
	}
	return &j.Alternatives[alternative-1]
}

// sameButType lists a request and the later ones that differ from it in the type
// of their GPUs alone.
func sameButType(j *model.Job, first int) []int {
	list := []int{first}
	a := request(j, first)
	for i := first + 1; i <= len(j.Alternatives); i++ {
		b := request(j, i)
		if a.Nodes == b.Nodes && a.Cores == b.Cores && a.CoresPerNode == b.CoresPerNode && a.Memory == b.Memory &&
			a.MemoryPerCore == b.MemoryPerCore && a.GPUs == b.GPUs && a.GPUMemory == b.GPUMemory && a.Remote == nil && b.Remote == nil &&
			a.Contiguous == b.Contiguous && a.Exclusive == b.Exclusive && slices.Equal(a.NodeList, b.NodeList) && slices.Equal(a.Lenders, b.Lenders) &&
			a.Run == b.Run && a.WallTime == b.WallTime && a.GPUs > 0 {
			list = append(list, i)
		}
	}
	return list
}

// covered is the part of all tasks that a target stands for.
const covered = 0.95

// Target is a workload that is expected: its most popular tasks, with how many
// there are of each. It tells what of a cluster's idle GPUs such tasks cannot use.
type Target struct {
	tasks  []task // those that need GPUs, by cores
	all    []task // the same without leaving out the rare ones
	weight int64  // of all tasks
	kinds  int    // of devices
	// steps[k] is the least loss of fragments, in thousandths x weight, that scores k.
	steps [101]int64
}

type task struct {
	cores, gpus int32
	weight      int64
	// need is how many thousandths of a device of each type a GPU of the task
	// takes: more than there are where the type will not do.
	need []int32
}

// never is more than any device has.
const never = math.MaxInt32

// milliOf is the part of a device that a share takes.
func milliOf(share, memory int64) int32 {
	switch {
	case share == 0:
		return thousand
	case share > memory:
		return never
	}
	return int32((share*thousand + memory - 1) / memory)
}

// Target is the most popular tasks that together make up 95 of 100.
func (c *Census) Target(cluster *model.Cluster) *Target {
	type counted struct {
		taskKey
		n int64
	}
	var list []counted
	total := int64(0)
	for key, n := range c.counts {
		list = append(list, counted{key, n})
		total += n
	}
	slices.SortFunc(list, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(b.cores, a.cores), cmp.Compare(b.share, a.share),
			cmp.Compare(b.gpus, a.gpus), strings.Compare(b.types, a.types))
	})
	t := &Target{kinds: len(cluster.GPUTypes)}
	for _, k := range list {
		popular := float64(t.weight) < covered*float64(total)
		if popular {
			t.weight += k.n
		}
		if k.gpus == 0 {
			continue
		}
		next := task{cores: int32(k.cores), gpus: int32(k.gpus), weight: k.n, need: make([]int32, t.kinds)}
		for i, g := range cluster.GPUTypes {
			next.need[i] = never
			if k.types == "" || slices.Contains(strings.Split(k.types, "|"), g.Name) {
				next.need[i] = milliOf(k.share, g.Memory)
			}
		}
		t.all = append(t.all, next)
		if popular {
			t.tasks = append(t.tasks, next)
		}
	}
	t.weight = max(1, t.weight) // where nothing is expected all is useless
	slices.SortStableFunc(t.tasks, func(a, b task) int { return cmp.Compare(a.cores, b.cores) })
	for k := range t.steps {
		t.steps[k] = t.scoring(k)
	}
	return t
}

// scoring is the least loss that scores k: 100 sigmoid(loss / (1000 weight)) >= k.
func (t *Target) scoring(k int) int64 {
	switch k {
	case 0:
		return math.MinInt64
	case 100: // the sigmoid is 1 where its rounding is
		return math.MaxInt64
	}
	return int64(math.Ceil(float64(thousand*t.weight) * math.Log(float64(k)/float64(100-k))))
}

// score is int(100 sigmoid(loss/1000)) for a loss in thousandths x weight.
func (t *Target) score(loss int64) int32 {
	at, found := slices.BinarySearch(t.steps[:], loss)
	if !found {
		at--
	}
	return int32(at)
}

// Level is devices of one type that have as much left, in thousandths.
type Level struct{ Type, Left, Count int32 }

// fragments is what tasks of the target cannot use of a node's idle GPUs, in
// thousandths x weight. A task that cannot run there can use nothing; one that can
// uses the devices that have enough left for it. A task without GPUs uses none.
func (t *Target) fragments(cores int32, levels []Level) int64 {
	idle, used := int64(0), int64(0)
	for i := range levels {
		idle += int64(levels[i].Left) * int64(levels[i].Count)
	}
	for i := range t.tasks {
		k := &t.tasks[i]
		if k.cores > cores {
			break
		}
		fits, usable := int32(0), int64(0)
		for j := range levels {
			if l := &levels[j]; l.Left >= k.need[l.Type] {
				fits += l.Count
				usable += int64(l.Left) * int64(l.Count)
			}
		}
		if fits >= k.gpus {
			used += k.weight * usable
		}
	}
	return t.weight*idle - used
}

// Fragments is how many thousandths of a node's idle GPUs a task of the target
// cannot use, on average. A cluster whose GPUs are decoupled is one node.
func (t *Target) Fragments(cores int32, levels []Level) float64 {
	return float64(t.fragments(cores, levels)) / float64(t.weight)
}
