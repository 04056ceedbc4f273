package agent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"muster/model"
	"muster/wire/grant"
)

// Version is the version of the conversation. Both sides must have the same.
const Version = 2

// ToHead is a message that agents send.
type ToHead interface {
	message
	toHead()
}

// ToAgent is a message that the head sends.
type ToAgent interface {
	message
	toAgent()
}

type message interface {
	Kind() string
	check() error
}

// Task names a node's part of a job.
type Task struct {
	Job uint64 `json:"job"`
	// Attempt counts how often the job was started, from 1.
	Attempt uint32 `json:"attempt"`
	// Part is the node's position in the job's allocation.
	Part int32 `json:"part"`
}

func (t Task) String() string { return fmt.Sprintf("%d.%d.%d", t.Job, t.Attempt, t.Part) }

func (t Task) check() error {
	if t.Job == 0 || t.Attempt == 0 || t.Part < 0 {
		return fmt.Errorf("a task %v, which cannot be", t)
	}
	return nil
}

// ---- to the head ----

// Hello is the greeting, and describes everything that the node has.
type Hello struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	// Incarnation is a random text kept in the node's spool.
	Incarnation string `json:"incarnation"`
	// User is the only user whose processes the agent can start; "" if it can start those of all
	// users.
	User   string `json:"user,omitempty"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory"`
	// Devices are the node's devices, by number.
	Devices []Device `json:"devices,omitempty"`
	// Gateway is the address at which programs of other nodes reach the devices, HOST:PORT; "" if
	// the node lends none.
	Gateway string `json:"gateway,omitempty"`
	// Tasks are all tasks that the agent knows.
	Tasks []Report `json:"tasks,omitempty"`
	// Loans are the IDs of the grants that the node serves (Lend). The head ends those of jobs that
	// are over, and makes missing ones again.
	Loans []string `json:"loans,omitempty"`
	// Cluster is the cluster whose jobs the node had last, and Last the largest job number that it
	// remembers. A head that was restored from an old backup must not give these numbers again: the
	// node would take the new job for the old one.
	Cluster string `json:"cluster,omitempty"`
	Last    uint64 `json:"last,omitempty"`
	// Checkpoints names the folder in which tasks can be saved (Checkpoint): nodes that say the same have
	// the same folder. If it is "", NoCheckpoints says why no task can be saved here.
	Checkpoints   string `json:"checkpoints,omitempty"`
	NoCheckpoints string `json:"no_checkpoints,omitempty"`
}

// Device is a GPU of a node.
type Device struct {
	Name   string  `json:"name"`
	Memory int64   `json:"memory"`
	Speed  float64 `json:"speed"`
	// Up says that the device accepts programs.
	Up bool `json:"up"`
	// Lender is the node that lends the device, by its name or the address of its gateway; "" if it
	// is the node's own.
	Lender string `json:"lender,omitempty"`
}

// Inventory says that the node's devices have changed, or whether it can take tasks.
type Inventory struct {
	Devices []Device `json:"devices,omitempty"`
	// Trouble is why the agent cannot take tasks for now, as when the disk of its spool is full; "" if it
	// can, as after each greeting.
	Trouble string `json:"trouble,omitempty"`
}

// AskPeers asks for other nodes from which this one may borrow virtual GPUs. Only nodes that are
// configured to borrow ask, now and then.
type AskPeers struct{}

// State is the state of a task.
type State string

// The states of a task.
const (
	// Starting: nothing of the task has begun yet, as far as the agent has heard. Processes that are being
	// made again from where they were saved (Start.From) have not, and what was saved is still needed.
	Starting  State = "starting"
	Running   State = "running"
	Suspended State = "suspended"
	Ended     State = "ended"
	// Unknown: the agent has no such task.
	Unknown State = "unknown"
)

// Report is the state of a task. The agent sends it when the state changes, and when the head asks.
type Report struct {
	Task  Task  `json:"task"`
	State State `json:"state"`
	// End is how the task ended; nil if it has not.
	End *End `json:"end,omitempty"`
}

// Cause is why a task ended.
type Cause string

// The causes.
const (
	Exited    Cause = "exited"    // its processes ended by themselves
	Stopped   Cause = "stopped"   // the head stopped it
	TimedOut  Cause = "timeout"   // it reached its time limit
	NoMemory  Cause = "memory"    // it reached its memory limit
	NotBegun  Cause = "not begun" // it could not be started: Reason says why
	NotReady  Cause = "not ready" // the node could not start it, and another may: nothing of it has begun
	NodeLost  Cause = "lost"      // the node, or the task's supervisor there, was lost
	Abandoned Cause = "abandoned" // another part of the job failed to start or was lost
)

// NoFiles is the Signal of a task that could not be started because its directory, input or output could not
// be opened: Slurm says 0:53 of such jobs.
const NoFiles = 53

// End is how a task ended.
type End struct {
	Cause Cause `json:"cause"`
	// Exit is the exit status of the process that failed first, or 0; Signal the
	// signal that ended it, or 0.
	Exit   int    `json:"exit"`
	Signal int    `json:"signal,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Began and Ended are instants on the node's clock, since 1970.
	Began time.Duration `json:"began,omitempty"`
	Ended time.Duration `json:"ended,omitempty"`
	// CPU is the processor time of all processes, Memory the most memory that they had.
	CPU    time.Duration `json:"cpu,omitempty"`
	Memory int64         `json:"memory,omitempty"`
}

// Lent answers Lend: the node serves the devices from now on. If it cannot, Error says why.
type Lent struct {
	ID    string `json:"id"`
	Error string `json:"error,omitempty"`
}

// Checkpointed answers Checkpoint: the task's processes are in the folder, as they are for as long as the
// task stays suspended. If they cannot be saved, Error says why, and nothing has changed.
type Checkpointed struct {
	Task   Task   `json:"task"`
	Folder string `json:"folder"`
	Bytes  uint64 `json:"bytes,omitempty"` // on the disk
	Error  string `json:"error,omitempty"`
}

// Pong answers Ping.
type Pong struct{}

// ---- to the agent ----

// Welcome answers Hello.
type Welcome struct {
	Cluster string `json:"cluster"`
	// Silence is how long either side may send nothing: the head sends Ping before that.
	Silence time.Duration `json:"silence"`
	// Heads names the heads of which this is one, and Term counts the times that one of them began to lead; of a
	// head that is alone they are "" and 0. An agent takes orders of the latest term that it has heard of.
	Heads string `json:"heads,omitempty"`
	Term  uint64 `json:"term,omitempty"`
}

// Refused answers Hello if the head does not accept the node, and ends the connection.
type Refused struct {
	Reason string `json:"reason"`
}

// Ping asks whether the other side is alive.
type Ping struct{}

// Start starts a task.
type Start struct {
	Task        Task   `json:"task"`
	Incarnation string `json:"incarnation"`
	Spec        Spec   `json:"spec"`
	// Grant is the task's right to use GPUs; nil if it has none.
	Grant *grant.Grant `json:"grant,omitempty"`
	// From is the folder from which the task's processes go on (Checkpoint), in place of what Spec says is
	// to be run; "" is none. Spec.Time is what is left of the time limit then.
	From string `json:"from,omitempty"`
}

// Spec is what to run, and within which limits.
type Spec struct {
	Name      string `json:"name"`
	User      string `json:"user"`
	Account   string `json:"account,omitempty"`
	Directory string `json:"directory"`
	// Environment is the user's, as NAME=VALUE; the agent adds what it knows of the job.
	Environment []string `json:"environment,omitempty"`
	// Script is run by part 0 alone, once, with Arguments; the other parts keep their resources for
	// what it starts there (muster exec). Without a script Arguments are the command, and each part
	// runs it in Processes processes; where there are none, the part keeps its resources until it is stopped.
	Script    string   `json:"script,omitempty"`
	Arguments []string `json:"arguments,omitempty"`
	// Processes is how many processes run here, of All in the whole job; First is the rank of the
	// first one here.
	Processes int `json:"processes"`
	First     int `json:"first"`
	All       int `json:"all"`
	// Nodes are the nodes of the allocation, in its order, and PerNode is how many of the job's
	// processes each has; if PerNode is empty, that is unknown.
	Nodes   []string `json:"nodes"`
	PerNode []int    `json:"processes_per_node,omitempty"`
	// Cores and Memory are those of this part. A Memory of 0 is no limit.
	Cores           int   `json:"cores"`
	CoresPerProcess int   `json:"cores_per_process"`
	Memory          int64 `json:"memory,omitempty"`
	// Time is the time limit, after which the processes get SIGTERM and, after Grace, SIGKILL; 0 is
	// no limit.
	Time  time.Duration `json:"time,omitempty"`
	Grace time.Duration `json:"grace"`
	// Input, Output and Error are files, relative to Directory, with Slurm's %j and so on filled
	// in. If Error is "", it is Output; if Input is "", it is empty.
	Input  string `json:"input,omitempty"`
	Output string `json:"output"`
	Error  string `json:"error,omitempty"`
	Append bool   `json:"append,omitempty"`
	// ArrayJob and ArrayTask are set for tasks of an array, and 0 otherwise.
	ArrayJob  uint64 `json:"array_job,omitempty"`
	ArrayTask uint32 `json:"array_task,omitempty"`
}

// Stop ends a task: its processes get SIGTERM and, after Grace, SIGKILL.
type Stop struct {
	Task   Task          `json:"task"`
	Cause  Cause         `json:"cause"`
	Reason string        `json:"reason,omitempty"`
	Grace  time.Duration `json:"grace"`
}

// Signal sends a signal to a task's processes, and changes nothing else.
type Signal struct {
	Task   Task `json:"task"`
	Signal int  `json:"signal"`
}

// Suspend stops a task's processes where they are, and frees its devices for others.
type Suspend struct {
	Task Task `json:"task"`
}

// Resume continues a suspended task.
type Resume struct {
	Task Task `json:"task"`
}

// Checkpoint saves the processes of a suspended task, with their GPUs' side, in a folder of the node's
// checkpoint_dir, and leaves them suspended. A task that is stopped after that can go on from there, on any
// node that has the same folder.
type Checkpoint struct {
	Task   Task   `json:"task"`
	Folder string `json:"folder"`
}

// Discard removes a folder that a Checkpoint has made.
type Discard struct {
	Folder string `json:"folder"`
}

// Done says that the head has recorded on disk how a task ended: the agent can forget the task.
type Done struct {
	Task Task `json:"task"`
}

// Lend makes the node serve its devices to programs that show the credential of a grant. The node where the grant's
// programs run may also be told of devices of other nodes, which serve the grant by then: it has them for the grant
// as its own.
type Lend struct {
	Loan grant.Loan `json:"loan"`
}

// Unlend ends a loan: programs that use the grant here are ended, and its credential becomes
// invalid.
type Unlend struct {
	ID string `json:"id"`
}

// Limit changes how many of a grant's devices may be used at a time; -1 is all.
type Limit struct {
	ID    string `json:"id"`
	Limit int    `json:"limit"`
}

// Open asks the agent for another connection to the head, for the bytes of a command or of a task's
// file, or for the node's status.
type Open struct {
	// Stream is the name that the agent gives when it dials.
	Stream string `json:"stream"`
	Task   Task   `json:"task,omitzero"` // zero for the node's status
	// Exactly one of Exec and File is set: a command, or a file of the task from Offset to its end
	// or, with Follow, until the task has ended.
	Exec   *Exec  `json:"exec,omitempty"`
	File   string `json:"file,omitempty"` // output, error, or FileStatus
	Offset int64  `json:"offset,omitempty"`
	Follow bool   `json:"follow,omitempty"`
	// Ended is what is read if the agent has forgotten the task, because that has ended.
	Ended *Written `json:"ended,omitempty"`
}

// Written is a file that a task wrote. It is read as the user.
type Written struct {
	User      string `json:"user"`
	Directory string `json:"directory"`
	File      string `json:"file"` // relative to Directory
}

// Peers answers AskPeers.
type Peers struct {
	// Gateways are those of other nodes, HOST:PORT.
	Gateways []string `json:"gateways,omitempty"`
}

// MaxPeers is how many peers a node is told of: those that come after it in the head's list, so
// that each node is asked by as many as any other, however many there are.
const MaxPeers = 32

// FileStatus asks for the node's status, a document of wire/status as JSON.
const FileStatus = "status"

// Exec is a command to run among a task's processes.
type Exec struct {
	Arguments   []string `json:"arguments"`
	Directory   string   `json:"directory,omitempty"` // "" is the task's directory
	Environment []string `json:"environment,omitempty"`
	// Terminal has the command run on a terminal of its own, which hangs up when the user does; nil
	// for pipes.
	Terminal *Terminal `json:"terminal,omitempty"`
}

// Terminal is how large a terminal is.
type Terminal struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

func (Hello) Kind() string     { return "hello" }
func (Inventory) Kind() string { return "inventory" }
func (Report) Kind() string    { return "report" }
func (Lent) Kind() string      { return "lent" }
func (Pong) Kind() string      { return "pong" }
func (AskPeers) Kind() string  { return "ask_peers" }
func (Peers) Kind() string     { return "peers" }
func (Welcome) Kind() string   { return "welcome" }
func (Refused) Kind() string   { return "refused" }
func (Ping) Kind() string      { return "ping" }
func (Start) Kind() string     { return "start" }
func (Stop) Kind() string      { return "stop" }
func (Signal) Kind() string    { return "signal" }
func (Suspend) Kind() string   { return "suspend" }
func (Resume) Kind() string    { return "resume" }
func (Done) Kind() string      { return "done" }
func (Lend) Kind() string      { return "lend" }
func (Unlend) Kind() string    { return "unlend" }
func (Limit) Kind() string     { return "limit" }
func (Open) Kind() string      { return "open" }

func (Checkpoint) Kind() string   { return "checkpoint" }
func (Checkpointed) Kind() string { return "checkpointed" }
func (Discard) Kind() string      { return "discard" }

func (Hello) toHead()     {}
func (Inventory) toHead() {}
func (Report) toHead()    {}
func (Lent) toHead()      {}
func (Pong) toHead()      {}
func (AskPeers) toHead()  {}

func (Checkpointed) toHead() {}

func (Welcome) toAgent() {}
func (Refused) toAgent() {}
func (Ping) toAgent()    {}
func (Start) toAgent()   {}
func (Stop) toAgent()    {}
func (Signal) toAgent()  {}
func (Suspend) toAgent() {}
func (Resume) toAgent()  {}
func (Done) toAgent()    {}
func (Lend) toAgent()    {}
func (Unlend) toAgent()  {}
func (Limit) toAgent()   {}
func (Open) toAgent()    {}
func (Peers) toAgent()   {}

func (Checkpoint) toAgent() {}
func (Discard) toAgent()    {}

// ---- checks of values ----

// Limits of the values in a message. Those of what a task runs are the system's: execve refuses a
// longer argument or variable, or more of them together, and open a longer path.
const (
	maxName      = grant.MaxName
	maxCores     = 1 << 20
	MaxPath      = 4<<10 - 1
	MaxArgument  = 128<<10 - 1
	MaxArguments = 6 << 20
)

// Wrong is what is wrong with a field of a Spec, or of an Exec.
type Wrong struct {
	Field  string // as JSON names it
	Reason string
}

func (w *Wrong) Error() string { return w.Field + ": " + w.Reason }

// CheckText refuses texts that no message carries unaltered, or that no process can be given. It
// says what to do, and not which text it is.
func CheckText(s string, most int) error {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return errors.New("it has a zero byte (NUL): remove it")
	case !utf8.ValidString(s):
		return errors.New("it is not valid UTF-8: convert it with iconv")
	case len(s) > most:
		return fmt.Errorf("it has %d bytes: give at most %d", len(s), most)
	}
	return nil
}

// field checks the texts of a field.
func field(name string, most int, texts ...string) error {
	for _, s := range texts {
		if err := CheckText(s, most); err != nil {
			return &Wrong{name, err.Error()}
		}
	}
	return nil
}

// checkProcess checks what execve is given: the arguments and variables of a process.
func checkProcess(arguments, environment []string) error {
	for _, v := range environment {
		if strings.IndexByte(v, '=') <= 0 {
			return &Wrong{"environment", fmt.Sprintf("%.40q is not a variable: write NAME=VALUE", v)}
		}
	}
	const pointer = 8
	sum := 0
	for _, list := range [][]string{arguments, environment} {
		for _, s := range list {
			sum += len(s) + 1 + pointer
		}
	}
	if sum > MaxArguments {
		return &Wrong{"arguments", fmt.Sprintf("they have %d bytes with the environment: a process has at most %d; pass what is large in files", sum, MaxArguments)}
	}
	return cmp.Or(field("arguments", MaxArgument, arguments...), field("environment", MaxArgument, environment...))
}

// How many tasks an agent may know at a time, and how many grants its node may serve.
const (
	MaxTasks = 4096
	MaxLoans = 4096
)

// CheckNodeName says what is wrong with the name of a node.
func CheckNodeName(name string) error {
	if grant.CheckName("node", name) != nil || strings.ContainsAny(name, "[],/") {
		return fmt.Errorf("a node called %.40q", name)
	}
	return nil
}

func (h Hello) check() error {
	switch {
	case CheckNodeName(h.Node) != nil:
		return CheckNodeName(h.Node)
	case h.Version != Version:
		return nil // the receiver of a greeting refuses a wrong version in words
	case h.Incarnation == "" || !goodText(h.Incarnation, maxName):
		return errors.New("no incarnation")
	case !goodText(h.User, maxName) || !goodText(h.Cluster, maxName) || !goodText(h.Checkpoints, maxName) || !goodText(h.NoCheckpoints, MaxReason):
		return errors.New("a name that is none")
	case h.Gateway != "" && grant.CheckAddress(h.Gateway) != nil: // it becomes part of grants
		return fmt.Errorf("a gateway: %w", grant.CheckAddress(h.Gateway))
	case h.Cores <= 0 || h.Cores > maxCores || h.Memory <= 0:
		return fmt.Errorf("%d cores and %d bytes", h.Cores, h.Memory)
	case len(h.Tasks) > 2*MaxTasks || len(h.Loans) > 2*MaxLoans: // with room for those that the limit does not count yet
		return fmt.Errorf("%d tasks and %d loans", len(h.Tasks), len(h.Loans))
	}
	for _, id := range h.Loans {
		if id == "" || !goodText(id, maxName) {
			return fmt.Errorf("a loan %.40q", id)
		}
	}
	known := make(map[Task]bool, len(h.Tasks))
	for _, r := range h.Tasks {
		if err := r.check(); err != nil {
			return err
		}
		if known[r.Task] || r.State == Unknown {
			return fmt.Errorf("task %v twice, or unknown", r.Task)
		}
		known[r.Task] = true
	}
	return Inventory{Devices: h.Devices}.check()
}

func (AskPeers) check() error { return nil }

func (p Peers) check() error {
	if len(p.Gateways) > MaxPeers {
		return fmt.Errorf("%d peers: at most %d", len(p.Gateways), MaxPeers)
	}
	for _, g := range p.Gateways {
		if g == "" || !goodText(g, maxName) {
			return fmt.Errorf("a gateway %.40q", g)
		}
	}
	return nil
}

func (i Inventory) check() error {
	if len(i.Devices) > model.MaxGPUsPerNode {
		return fmt.Errorf("%d devices", len(i.Devices))
	}
	for _, d := range i.Devices {
		if d.Memory <= 0 || !(d.Speed > 0 && d.Speed < 1e9) || !goodText(d.Name, maxName) || !goodText(d.Lender, maxName) {
			return fmt.Errorf("a device %.40q of %d bytes and speed %v", d.Name, d.Memory, d.Speed)
		}
	}
	if !goodText(i.Trouble, MaxReason) {
		return errors.New("a trouble that is no text")
	}
	return nil
}

func (r Report) check() error {
	switch {
	case (r.State == Ended) != (r.End != nil):
		return fmt.Errorf("task %v %s, with and without an end", r.Task, r.State)
	case r.State != Starting && r.State != Running && r.State != Suspended && r.State != Ended && r.State != Unknown:
		return fmt.Errorf("task %v %.20q", r.Task, r.State)
	case r.End != nil:
		if err := r.End.check(); err != nil {
			return err
		}
	}
	return r.Task.check()
}

func (e *End) check() error {
	if !e.Cause.known() || e.Exit < 0 || e.Exit > 255 || e.Signal < 0 || e.Signal > 64 || e.CPU < 0 || e.Memory < 0 || e.Began < 0 || e.Ended < 0 || !goodText(e.Reason, MaxReason) {
		return fmt.Errorf("an end by %.20q that makes no sense", e.Cause)
	}
	return nil
}

func (c Cause) known() bool {
	switch c {
	case Exited, Stopped, TimedOut, NoMemory, NotBegun, NotReady, NodeLost, Abandoned:
		return true
	}
	return false
}

func (s Start) check() error {
	if s.Incarnation == "" {
		return errors.New("no incarnation")
	}
	if s.Grant != nil {
		if err := s.Grant.Validate(); err != nil {
			return err
		}
	}
	if err := s.Spec.check(); err != nil {
		return err
	}
	if s.From != "" {
		if err := checkFolder(s.From); err != nil {
			return err
		}
	}
	if int(s.Task.Part) >= len(s.Spec.Nodes) {
		return fmt.Errorf("part %d of %d nodes", s.Task.Part, len(s.Spec.Nodes))
	}
	return s.Task.check()
}

func (s *Spec) check() error {
	switch {
	case s.User == "" || s.Directory == "":
		return errors.New("no user or no directory")
	case s.Output == "":
		return &Wrong{"output", "its name is empty once %x and its like are filled in: give another"}
	case s.Script == "" && len(s.Arguments) == 0 && s.Processes > 0:
		return errors.New("nothing to run")
	case s.Processes < 0 || s.First < 0 || s.All < s.First+s.Processes || s.Cores <= 0 || s.CoresPerProcess < 0 || s.Memory < 0 || s.Time < 0 || s.Grace < 0:
		return errors.New("a number that cannot be")
	case len(s.PerNode) > 0 && len(s.PerNode) != len(s.Nodes) || slices.ContainsFunc(s.PerNode, func(n int) bool { return n < 0 }):
		return errors.New("processes of nodes that are not there")
	}
	return cmp.Or(
		field("name", MaxArgument/2, s.Name), field("account", MaxArgument/2, s.Account), // these become variables
		field("user", maxName, s.User), field("nodes", maxName, s.Nodes...),
		field("directory", MaxPath, s.Directory), field("input", MaxPath, s.Input), field("output", MaxPath, s.Output), field("error", MaxPath, s.Error),
		field("script", MaxMessage, s.Script),
		checkProcess(s.Arguments, s.Environment),
	)
}

func (s Stop) check() error {
	if !s.Cause.known() || s.Grace < 0 || !goodText(s.Reason, MaxReason) {
		return fmt.Errorf("a cause %.20q, or a time of %v", s.Cause, s.Grace)
	}
	return s.Task.check()
}

func (s Signal) check() error {
	if s.Signal <= 0 || s.Signal > 64 {
		return fmt.Errorf("a signal %d", s.Signal)
	}
	return s.Task.check()
}

func (l Limit) check() error {
	if l.ID == "" || l.Limit < -1 {
		return fmt.Errorf("a limit of %d for %q", l.Limit, l.ID)
	}
	return nil
}

func (l Lent) check() error {
	if l.ID == "" || !goodText(l.Error, MaxReason) {
		return errors.New("no grant, or an error that is no text")
	}
	return nil
}

func (u Unlend) check() error {
	if u.ID == "" {
		return errors.New("no grant")
	}
	return nil
}

func (o Open) check() error {
	if o.Stream == "" || (o.Exec == nil) == (o.File == "") || o.Offset < 0 {
		return errors.New("nothing to open, or two things")
	}
	if o.Exec != nil {
		if len(o.Exec.Arguments) == 0 {
			return errors.New("nothing to run")
		}
		if err := cmp.Or(field("directory", MaxPath, o.Exec.Directory), checkProcess(o.Exec.Arguments, o.Exec.Environment)); err != nil {
			return err
		}
	}
	if e := o.Ended; e != nil {
		if o.Exec != nil || o.File == FileStatus || e.User == "" || e.Directory == "" || e.File == "" {
			return errors.New("a file of nobody, or nowhere")
		}
		if err := cmp.Or(field("user", maxName, e.User), field("directory", MaxPath, e.Directory), field("file", MaxPath, e.File)); err != nil {
			return err
		}
	}
	if o.File == FileStatus {
		if o.Task != (Task{}) || o.Offset != 0 || o.Follow {
			return errors.New("the status is the node's, not a task's")
		}
		return nil
	}
	return o.Task.check()
}

func (w Welcome) check() error {
	if w.Silence <= 0 || !goodText(w.Cluster, maxName) || !goodText(w.Heads, maxName) {
		return errors.New("no silence, or a cluster's name that is none")
	}
	return nil
}

// checkFolder refuses what is no name of a folder that the head gives: it becomes part of a path.
func checkFolder(name string) error {
	for i, c := range []byte(name) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || i > 0 && (c == '-' || c == '.')) {
			return fmt.Errorf("a folder %.40q", name)
		}
	}
	if name == "" || len(name) > maxFolder {
		return fmt.Errorf("a folder %.40q", name)
	}
	return nil
}

// maxFolder is how long the name of a folder may be.
const maxFolder = 128

func (c Checkpoint) check() error { return cmp.Or(checkFolder(c.Folder), c.Task.check()) }
func (d Discard) check() error    { return checkFolder(d.Folder) }

func (c Checkpointed) check() error {
	if !goodText(c.Error, MaxReason) {
		return errors.New("an error that is no text")
	}
	return cmp.Or(checkFolder(c.Folder), c.Task.check())
}

func (r Resume) check() error  { return r.Task.check() }
func (s Suspend) check() error { return s.Task.check() }
func (d Done) check() error    { return d.Task.check() }
func (l Lend) check() error    { return l.Loan.Validate() }
func (Pong) check() error      { return nil }
func (Ping) check() error      { return nil }
func (Refused) check() error   { return nil }

func goodText(s string, limit int) bool { return CheckText(s, limit) == nil }

// Reason makes a reason fit for a message: valid UTF-8 without zero bytes, and not too long.
func Reason(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) > MaxReason {
		text = strings.ToValidUTF8(text[:MaxReason], "")
	}
	return text
}
