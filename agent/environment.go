package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"muster/model"
	wire "muster/wire/agent"
	"muster/wire/grant"
)

// markerName is the variable that tells a task's processes from others.
const markerName = "MUSTER_TASK"

// environment is a set of variables.
type environment struct {
	names  []string
	values map[string]string
}

func newEnvironment(list []string) *environment {
	e := &environment{values: make(map[string]string, len(list))}
	for _, v := range list {
		name, value, _ := strings.Cut(v, "=")
		e.set(name, value)
	}
	return e
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) setMissing(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.set(name, value)
	}
}

// both sets a variable under Muster's and Slurm's prefix.
func (e *environment) both(name string, value any) {
	text := fmt.Sprint(value)
	e.set("MUSTER_"+name, text)
	e.set("SLURM_"+name, text)
}

func (e *environment) list() []string {
	list := make([]string, 0, len(e.names))
	for _, name := range e.names {
		list = append(list, name+"="+e.values[name])
	}
	return list
}

func (e *environment) clone() *environment {
	return &environment{names: slices.Clone(e.names), values: maps.Clone(e.values)}
}

// taskEnvironment is what all processes of a task have in their environment: the user's
// variables, and what is known of the job.
func taskEnvironment(f *taskFile, who *account) *environment {
	spec, task := &f.start.Spec, f.start.Task
	e := newEnvironment(spec.Environment)
	for _, v := range [][2]string{{"HOME", who.home}, {"USER", who.name}, {"LOGNAME", who.name}, {"SHELL", who.shell}, {"PATH", "/usr/local/bin:/usr/bin:/bin"}} {
		e.setMissing(v[0], v[1])
	}
	nodes := model.CompressNodes(spec.Nodes)
	e.both("JOB_ID", task.Job)
	e.both("JOBID", task.Job)
	e.both("JOB_NAME", spec.Name)
	e.both("JOB_USER", spec.User)
	e.both("JOB_UID", who.uid)
	if spec.Account != "" {
		e.both("JOB_ACCOUNT", spec.Account)
	}
	e.both("JOB_NODELIST", nodes)
	e.both("NODELIST", nodes)
	e.both("JOB_NUM_NODES", len(spec.Nodes))
	e.both("NNODES", len(spec.Nodes))
	e.both("NODEID", task.Part)
	e.set("SLURMD_NODENAME", f.Node)
	e.set("MUSTER_NODENAME", f.Node)
	if f.Socket != "" { // not MUSTER_SOCKET, which is where the task reaches its GPUs
		e.set("MUSTER_NODE_SOCKET", f.Socket)
	}
	e.both("NTASKS", spec.All)
	e.both("NPROCS", spec.All)
	if spec.CoresPerProcess > 0 {
		e.both("CPUS_PER_TASK", spec.CoresPerProcess)
	}
	if len(spec.PerNode) > 0 {
		e.both("TASKS_PER_NODE", tasksPerNode(spec.PerNode))
	}
	e.both("CPUS_ON_NODE", spec.Cores)
	e.both("SUBMIT_DIR", spec.Directory)
	e.both("RESTART_COUNT", task.Attempt-1)
	if spec.Memory > 0 {
		e.both("MEM_PER_NODE", spec.Memory>>20)
	}
	if spec.ArrayJob != 0 {
		e.both("ARRAY_JOB_ID", spec.ArrayJob)
		e.both("ARRAY_TASK_ID", spec.ArrayTask)
	}
	grantEnvironment(e, f.start.Grant)
	e.set(markerName, f.Marker)
	return e
}

// tasksPerNode writes counts as Slurm does: 2(x3),1.
func tasksPerNode(counts []int) string {
	var words []string
	for i := 0; i < len(counts); {
		same := i
		for same < len(counts) && counts[same] == counts[i] {
			same++
		}
		word := strconv.Itoa(counts[i])
		if same-i > 1 {
			word += fmt.Sprintf("(x%d)", same-i)
		}
		words, i = append(words, word), same
	}
	return strings.Join(words, ",")
}

// launchers sets the variables by which MPI's launchers start processes on the other nodes
// of a job with shell, a program that takes ssh's arguments. The launchers find the nodes
// in Slurm's variables. What the user has set stays.
func launchers(e *environment, shell string) {
	for _, v := range [][2]string{
		{"HYDRA_LAUNCHER", "ssh"}, {"HYDRA_LAUNCHER_EXEC", shell}, // MPICH, MVAPICH and Intel
		// Do not copy the first node's variables to the others: their processes would look
		// for the first node's GPUs.
		{"HYDRA_ENV", "none"},
		{"OMPI_MCA_plm", "rsh"}, {"OMPI_MCA_plm_rsh_agent", shell}, // Open MPI up to 4
		{"PRTE_MCA_plm", "ssh"}, {"PRTE_MCA_plm_ssh_agent", shell}, // Open MPI 5
	} {
		e.setMissing(v[0], v[1])
	}
}

// grantEnvironment says which devices the task has, as rCUDA does.
func grantEnvironment(e *environment, g *grant.Grant) {
	if g == nil {
		e.set("RCUDA_DEVICE_COUNT", "0")
		return
	}
	e.both("GPUS_ON_NODE", len(g.Devices))
	for _, v := range g.Environment() {
		name, value, _ := strings.Cut(v, "=")
		e.set(name, value)
	}
}

// rankEnvironment is that of one of the task's processes.
func rankEnvironment(task *environment, spec *wire.Spec, local int) []string {
	e := task.clone()
	e.both("PROCID", spec.First+local)
	e.both("LOCALID", local)
	return e.list()
}
