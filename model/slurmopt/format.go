package slurmopt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
)

// Format writes the options as one line in canonical form. ParseLine reads it back (for the tool
// Submit: Words, then Parse). A request that cannot be expressed in Slurm's options is an error.
func (o *Options) Format() (string, error) {
	var words []string
	if o.Tool != "" {
		words = append(words, o.Tool)
	}
	request, err := requestWords(&o.Request, o.Time)
	if err != nil {
		return "", err
	}
	words = append(words, request...)
	if o.Unlimited {
		words = append(words, "-t", "UNLIMITED")
	}
	for i := range o.Alternatives {
		r := &o.Alternatives[i]
		other, err := requestWords(r, r.WallTime)
		if err != nil {
			return "", fmt.Errorf("alternative %d: %w", i+1, err)
		}
		words = append(words, "--or="+quoteWords(other))
	}
	for _, a := range []struct{ option, value string }{
		{"--exclude=", model.CompressNodes(o.Exclude)}, {"--job-name=", o.Name}, {"--partition=", o.Partition},
		{"--account=", o.Account}, {"--qos=", o.QOS},
	} {
		if a.value != "" {
			words = append(words, a.option+a.value)
		}
	}
	if o.Priority != 0 {
		words = append(words, "--priority="+strconv.FormatInt(o.Priority, 10))
	}
	words = append(words, TermsWords(&o.GPU)...)
	if o.Tool == Submit {
		words = append(append(words, batchWords(&o.Batch)...), clientWords(&o.Client)...)
	}
	if o.Client.Wrap && len(o.Command) == 3 {
		words = append(words, "--wrap="+o.Command[2])
	} else if len(o.Command) > 0 {
		if o.Tool != Submit || o.Client.Program {
			words = append(words, "--")
		}
		words = append(words, o.Command...)
	}
	return quoteWords(words), nil
}

// Public is what the options ask of the cluster, and nothing that concerns the job's user alone: the
// command, the files and the directory, the variables, the comment.
func (o *Options) Public() *Options {
	p := *o
	b := &o.Batch
	p.Command, p.Client = nil, Client{}
	p.Batch = Batch{
		Array: b.Array, Dependency: b.Dependency, Begin: b.Begin, Deadline: b.Deadline, Hold: b.Hold, Nice: b.Nice,
		Requeue: b.Requeue, Reservation: b.Reservation, Constraint: b.Constraint, Licenses: b.Licenses, Signal: b.Signal,
	}
	return &p
}

// FormatRequest writes one request as options.
func FormatRequest(r *model.Request) (string, error) {
	words, err := requestWords(r, r.WallTime)
	return quoteWords(words), err
}

var errMegabytes = errors.New("Slurm counts memory in megabytes: give a multiple of 1048576 bytes")

func requestWords(r *model.Request, limit time.Duration) ([]string, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	words, err := sizeWords(r)
	if err != nil {
		return nil, err
	}
	option := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	switch {
	case r.Memory > 0 && r.MemoryPerCore > 0:
		return nil, errors.New("memory for a node and for each core: Slurm has options for either, not for both")
	case r.Memory%megabyte != 0 || r.MemoryPerCore%megabyte != 0:
		return nil, errMegabytes
	case r.Memory > 0:
		option("--mem=%s", memoryText(r.Memory))
	case r.MemoryPerCore > 0:
		option("--mem-per-cpu=%s", memoryText(r.MemoryPerCore))
	}
	gres, err := gresText(r)
	if err != nil {
		return nil, err
	}
	if gres != "" {
		option("--gres=%s", gres)
	}
	if m := r.Remote; m != nil && m.Memory > 0 && !m.Shared {
		option("--rcuda-mode=%s", exclusiveMode)
	}
	if r.Contiguous {
		option("--contiguous")
	}
	if r.Exclusive {
		option("--exclusive")
	}
	if len(r.NodeList) > 0 {
		if len(r.NodeList) != r.Nodes {
			return nil, errors.New("a choice among more nodes than are needed: --nodelist names those that the job gets")
		}
		option("--nodelist=%s", model.CompressNodes(r.NodeList))
	}
	if limit > 0 {
		if limit%time.Minute != 0 {
			return nil, errors.New("Slurm counts time limits in minutes: give whole ones")
		}
		option("--time=%s", units.FormatDuration(limit))
	}
	if r.Run > 0 {
		option("--run=%s", units.FormatDuration(r.Run))
	}
	return words, nil
}

// sizeWords are -N, -n and -c.
func sizeWords(r *model.Request) ([]string, error) {
	var words []string
	number := func(option string, n int) { words = append(words, option, strconv.Itoa(n)) }
	if r.Nodes == 0 {
		each := max(1, r.CoresPerProcess)
		if n := r.Cores / each; r.Processes != 0 && r.Processes != n {
			return nil, fmt.Errorf("%d processes on %d cores, %d together: Slurm gives every task its cores", r.Processes, r.Cores, each)
		}
		number("-n", r.Cores/each)
		number("-c", each)
		return words, nil
	}
	tasks := r.Processes
	if tasks == 0 {
		tasks = r.Nodes
	}
	perNode := int(ceilDiv(int64(tasks), int64(r.Nodes)))
	cores := r.CoresOnNode()
	if tasks < r.Nodes || cores < perNode {
		return nil, fmt.Errorf("%d processes on %d nodes of %d cores: Slurm gives every node a task, and every task a core", tasks, r.Nodes, cores)
	}
	number("-N", r.Nodes)
	number("-n", tasks)
	// If the cores of a node are not a multiple of its tasks, the node has room for more tasks than
	// it runs.
	room := perNode
	for cores%room != 0 {
		room++
	}
	if room > perNode {
		words = append(words, "--ntasks-per-node="+strconv.Itoa(room))
	}
	number("-c", cores/room)
	return words, nil
}

// memoryText writes whole megabytes in the largest unit that fits.
func memoryText(n int64) string {
	n /= megabyte
	unit := 0
	for unit < 2 && n%1024 == 0 {
		n /= 1024
		unit++
	}
	return strconv.FormatInt(n, 10) + "MGT"[unit:unit+1]
}

func gresText(r *model.Request) (string, error) {
	var items []string
	kind := ""
	if t := r.GPUType; t != "" && (r.GPUs > 0 || r.Remote != nil) {
		if checkType(t) != nil {
			return "", fmt.Errorf("the GPU type %q cannot be written as an option of Slurm", t)
		}
		kind = t + ":"
	}
	if r.GPUs > 0 {
		item := fmt.Sprintf("gpu:%s%d", kind, r.GPUs)
		if r.GPUMemory%megabyte != 0 {
			return "", errMegabytes
		}
		if r.MoreGPUs {
			item += "+"
		}
		if r.GPUMemory > 0 {
			item += ":" + memoryText(r.GPUMemory)
		}
		items = append(items, item)
	}
	if m := r.Remote; m != nil {
		item := fmt.Sprintf("rgpu:%s%d", kind, m.Count)
		if m.Memory%megabyte != 0 {
			return "", errMegabytes
		}
		if m.Memory > 0 {
			item += ":" + memoryText(m.Memory)
		}
		items = append(items, item)
	}
	return strings.Join(items, ","), nil
}
