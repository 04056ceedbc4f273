package control

import (
	"errors"
	"fmt"
	"time"
)

// ToWorker is a message from the daemon to a worker.
type ToWorker interface {
	message
	toWorker()
}

// ToDaemon is a message from a worker to the daemon.
type ToDaemon interface {
	message
	toDaemon()
}

type message interface {
	// Kind is the message's name on the connection and in logs.
	Kind() string
	// check refuses values that no honest sender writes.
	check() error
}

// --- from the daemon to a worker ---------------------------------------------

// Serve is the first message: it assigns the worker its client. The descriptors of the ring, of the
// data arena and of one lock for each device come with it. The locks are open file descriptions of
// this worker alone.
// It has a field for each thing that a worker must know of its client.
type Serve struct {
	// Client is the client's number on this node.
	Client uint64 `json:"client"`
	// ArenaBase and ArenaSize are the range of device addresses of the client's allocations.
	ArenaBase uint64 `json:"arena_base"`
	ArenaSize uint64 `json:"arena_size"`
	// Memory is how many bytes of device memory the client may allocate.
	Memory uint64 `json:"memory"`
	// MemoryBy tells the program's user which setting determines Memory, and how to change
	// it.
	MemoryBy string `json:"memory_by,omitempty"`
	// Guest says that the client is another node, which uses the device as its own.
	Guest bool `json:"guest,omitempty"`
	// Share is how many bytes of its device the client, together with other clients of the same
	// grant, may take, contexts included; 0 is all.
	Share uint64 `json:"share,omitempty"`
	// Devices are the node's devices; messages name them by their index here.
	Devices []DeviceConfig `json:"devices"`
	// SwapDir is the folder for host copies of device memory; "" keeps them in
	// memory.
	SwapDir string `json:"swap_dir,omitempty"`
	// Defer keeps copies to the device on the host until a kernel needs them,
	// even after the first launch.
	Defer bool `json:"defer,omitempty"`
	// Recover says that the client is to outlive its worker: three more descriptors follow those of
	// the ring and the arena, of two files for host copies and one for the journal.
	Recover bool `json:"recover,omitempty"`
	// Resume says that another worker has served the client before: it is rebuilt from the contents
	// of those descriptors.
	Resume bool `json:"resume,omitempty"`
	// Tries is how many workers have been tried since the client was last what it had been.
	Tries int `json:"tries,omitempty"`
	// Hold gives a worker that continues another's client the program's connection, as the last
	// descriptor. It is part of this message, so that there is no moment at which the worker has
	// the client and would not outlive the daemon.
	Hold *Hold `json:"hold,omitempty"`
	// Lease is the number of the last Grant that was sent to the worker before this one.
	Lease uint64 `json:"lease,omitempty"`
	// Committed is how many bytes of the swap area the worker before this one had for the client.
	// They still belong to the client.
	Committed uint64 `json:"committed,omitempty"`
	// User is the account to which the worker changes before it reads what the client sent; nil to
	// keep its own.
	User *User `json:"user,omitempty"`
	// Owner is the user of this machine to whom the program belongs: programs of the same owner may
	// share memory. It is empty for programs of other machines.
	Owner string `json:"owner,omitempty"`
	// Node is the daemon's socket, where a worker that has outlived the daemon finds the next one,
	// and OrphanGrace is how long it looks for that; with 0 it ends with the daemon.
	Node        string        `json:"node,omitempty"`
	OrphanGrace time.Duration `json:"orphan_grace,omitempty"`
	// Mapping names the mapper (package mapping) that decides for each launch which of the
	// devices runs it; "" for none.
	Mapping string `json:"mapping,omitempty"`
	// Explain is how many decisions of the mapper may be explained to the program's user.
	Explain int `json:"explain,omitempty"`
	// KernelTime is how long one kernel of the client may hold a device; 0 is no limit. KernelTimeBy
	// tells the program's user which setting says so, and how to change it.
	KernelTime   time.Duration `json:"kernel_time,omitempty"`
	KernelTimeBy string        `json:"kernel_time_by,omitempty"`
	// Pace says how the client's kernels give way to those of others; nil if they do not. With it
	// comes one more descriptor, the last, of the memory in which workers claim devices.
	Pace *Pace `json:"pace,omitempty"`
	// MPS says how the worker's process uses NVIDIA's Multi-Process Service; nil is as its
	// environment says.
	MPS *MPS `json:"mps,omitempty"`
	// Identity is a word that no other client has. It stays with a client that is saved
	// and restored.
	Identity string `json:"identity,omitempty"`
}

// Pace says how a client's kernels give way to those of others.
type Pace struct {
	// Latency says that others give way to the client: its class is latency, not batch.
	Latency bool `json:"latency,omitempty"`
	// Share is the largest fraction of the time, below 1, in which clients of class latency may
	// keep the client from launching kernels.
	Share float64 `json:"share"`
	// Window is how much work, as a time, the client may have in flight while programs of class
	// latency are active.
	Window time.Duration `json:"window"`
	// Quantum is the node's time slice: a fraction of it is how much the client may have in flight
	// while others wait for its device; 0 is no limit.
	Quantum time.Duration `json:"quantum,omitempty"`
}

// MPS says how a worker's process uses NVIDIA's Multi-Process Service.
type MPS struct {
	// Pipe is the folder in which the service is reached. If there is no service, the process has
	// contexts of its own.
	Pipe string `json:"pipe"`
	// Shared says that there is a service: a fault of another client may end the client's contexts.
	Shared bool `json:"shared,omitempty"`
	// Share is the percentage of a device's multiprocessors that the client may use; 0 is all.
	Share int `json:"share,omitempty"`
	// Queues is how many queues of the device the process asks for; 0: what the driver gives it.
	Queues int `json:"queues,omitempty"`
}

// User is a user of the machine, as the system knows it.
type User struct {
	// UID is the effective user, whose files the worker can access.
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups,omitempty"`
	// Own is the real and saved user, which no other process has; 0 for UID.
	Own int `json:"own,omitempty"`
}

// Engines are the names of the engines that can run a soft device's kernels.
var Engines = []string{"auto", "interpret", "compile"}

// DeviceConfig says how to open a device.
type DeviceConfig struct {
	// Gone says that the device does not exist: only its number is taken.
	Gone bool `json:"gone,omitempty"`
	// Kind is "soft", "cuda", "remote" or KindLent.
	Kind string `json:"kind"`
	// Name is what programs see as the device's name.
	Name string `json:"name"`
	// Memory is the size of a soft device's memory in bytes; 0 for its profile's.
	Memory uint64 `json:"memory,omitempty"`
	// Speed is relative to other devices; 0 for the device's own.
	Speed float64 `json:"speed,omitempty"`
	// Rate is how many single-lane operations per second a soft device performs; 0 is what the
	// machine achieves at its speed.
	Rate float64 `json:"rate,omitempty"`
	// CopyBandwidth is a soft device's bandwidth between host and device, in bytes per second; 0 is
	// unlimited.
	CopyBandwidth uint64 `json:"copy_bandwidth,omitempty"`
	// Workers is how many threads run a soft device's kernels; 0 for its default.
	Workers int `json:"workers,omitempty"`
	// Engine is what runs a soft device's kernels: "auto", "interpret" or "compile"; ""
	// for its default.
	Engine string `json:"engine,omitempty"`
	// OwnProcess has a soft device's contexts need a process each, as those of NVIDIA GPUs do.
	OwnProcess bool `json:"own_process,omitempty"`
	// Index tells soft devices of one profile apart; for cuda it is the driver's
	// number of the device, for remote that node's.
	Index int `json:"index"`
	// Lender is how to reach the node that lends a remote device.
	Lender Lender `json:"lender,omitzero"`
	// Faults is a file with rules by which the device fails (device/fault); "" for
	// none. It is for tests only.
	Faults string `json:"faults,omitempty"`
}

// KindLent is the kind of a device of this node that is used by way of another worker. What is opened
// with it is the connection that came with GrantFurther.
const KindLent = "lent"

// Lender is another node, as a worker reaches it.
type Lender struct {
	// Address is HOST:PORT.
	Address string `json:"address"`
	// Ticket is the secret with which a device was borrowed: with it the worker needs neither
	// certificate nor token, and recognises the other node only by Authority, in PEM form, and by the
	// list of revoked certificates in the file Revoked. It is "" for a device that the node has
	// permanently.
	Ticket string `json:"ticket,omitempty"`
	// Granted says that Ticket is the credential of a job's grant: the device is there for the job alone.
	Granted   bool   `json:"granted,omitempty"`
	Authority string `json:"authority,omitempty"`
	Revoked   string `json:"revoked,omitempty"`
	// TLS is the folder with the certificates by which the two recognise each other.
	TLS string `json:"tls,omitempty"`
	// Token is the file with the token of the other node; "" if it needs none.
	Token string `json:"token,omitempty"`
	// Plain says that the connections are without TLS.
	Plain bool `json:"plain,omitempty"`
}

// Grant answers Want and Grow: the worker may use the device.
type Grant struct {
	// Lease is the number of this binding to the device, which Released and
	// Failed repeat. A Grant that answers Grow has the number of the one before.
	Lease uint64 `json:"lease"`
	// Device is the device's index in Serve.Devices.
	Device int `json:"device"`
	// Memory is how many bytes the worker may take there in all.
	Memory uint64 `json:"memory"`
	// Coming is how many it will be granted in all, without asking for them, when other clients
	// have left; 0 if Memory is all. The worker may bring in memory meanwhile.
	Coming uint64 `json:"coming,omitempty"`
}

// Deny answers a Want or Grow that will not be granted for now. A worker that has a device releases
// it and asks for one again.
type Deny struct {
	// Lease is the number of the binding that was to grow, so that a worker which has released it
	// meanwhile does not take the Deny for the answer to its next Want; 0 if a Want is denied.
	Lease  uint64 `json:"lease,omitempty"`
	Reason string `json:"reason"`
}

// Revoke takes back the device, or what a worker without a lease keeps on one. The worker lets its
// kernels finish, moves the client's memory to the host, and answers with Released, or with Failed.
type Revoke struct {
	// Reason is one of the dispatcher's, such as "idle" or "memory".
	Reason string `json:"reason"`
	// Keep is how many bytes of the client's memory may stay on the device. If there are
	// any, the context may stay open whatever the reason is.
	Keep uint64 `json:"keep,omitempty"`
	// Step asks for Freed each time that so many bytes were freed; 0 if nobody could use them.
	Step uint64 `json:"step,omitempty"`
}

// Lost says that a device is gone, with everything on it. The lease, and whatever the worker kept
// there, have ended; no answer is expected.
type Lost struct {
	Device int    `json:"device"`
	Reason string `json:"reason"`
}

// Watch asks the worker to report promptly when its client becomes idle or busy, beginning with the
// present state, or tells it that it need not.
type Watch struct {
	On bool `json:"on"`
}

// Parked says that the client's Want is not answered because no device can take it at present, and
// what it waits for. The worker tells the program's user; no answer is expected.
type Parked struct {
	Reason string `json:"reason"`
}

// Committed answers Commit.
type Committed struct {
	// Bytes repeats what the Commit asked for.
	Bytes uint64 `json:"bytes"`
	// Granted says whether the swap area has room for that.
	Granted bool `json:"granted"`
	// Reason says why not.
	Reason string `json:"reason,omitempty"`
}

// Ping asks the worker to answer with Pong at once, to find out whether it is
// alive. The first comes right after Serve: its answer says that the worker is ready.
type Ping struct {
	// Number counts the daemon's pings to this worker, from 1.
	Number uint64 `json:"number"`
}

// Hold gives a worker that has an OrphanGrace a descriptor of its program's connection. So the
// program does not see the end of the connection when the daemon dies, and the worker sees the
// program's end. From now on the worker outlives the daemon, unless it is told to End.
//
// The worker, not the daemon, tells the program that it is attached. So whenever the daemon dies,
// the program either is attached and has a worker that lives on, or sees the end of its connection.
// A worker that is to rebuild a client gets the connection with Serve.
type Hold struct {
	// Attached is the record for the program; the ring and the data arena go with it. It is empty
	// if the program is attached already.
	Attached []byte `json:"attached"`
}

// End says that the client has ended. The daemon closes the connection next.
type End struct{}

// AddDevice says that a device was added to the node, or that one which was gone came back, perhaps
// as another. Its lock comes with it, as with Serve: the worker may not be able to open files any
// more. No answer is expected.
type AddDevice struct {
	// Device is its number: the next one, or that of a device which is gone and on
	// which the worker has nothing.
	Device int          `json:"device"`
	Config DeviceConfig `json:"config"`
}

// Renew asks the worker to give up its client so that another worker rebuilds it. If that is
// possible the worker answers with Rebuild, otherwise not at all.
type Renew struct {
	// Device is where a fault of another client has ended the contexts of all: a worker that has
	// none there continues. It is -1 if the worker is to stop in any case, after it has let running
	// work finish.
	Device int    `json:"device"`
	Reason string `json:"reason"`
}

// Probe is the first message to a worker that is to try a device, and has no client.
// The device's lock comes with it. The worker answers with Probed, or with CannotServe.
type Probe struct {
	Device DeviceConfig `json:"device"`
}

// Prepare is the first message to a worker that is to be ready for the next client: it opens the
// device and a context there, and maps the memory that the client will share with its program. With
// this message come the descriptors of the device's lock, of the ring and of the data arena. The
// worker answers with Pong, or with CannotServe. Serve follows, with the same ring and arena, of a
// client whose device addresses begin at ArenaBase, and whose MPS and Pace have the same effect on
// the process's environment, which cannot change once a device is open.
type Prepare struct {
	ArenaBase uint64 `json:"arena_base"`

	Device DeviceConfig `json:"device"`
	MPS    *MPS         `json:"mps,omitempty"`
	Pace   *Pace        `json:"pace,omitempty"`
}

// Forgo makes a worker close the context that it prepared, if its client has not used it yet: the
// memory is needed. It answers with Forgone.
type Forgo struct{}

// Checkpoint makes the worker write the client to the file that comes with it. The worker lets
// running work finish, moves the client off its device, writes, and answers with Checkpointed; then
// the client continues.
type Checkpoint struct {
	// Hold says that the client must not continue until Proceed: its program is being saved too.
	Hold bool `json:"hold,omitempty"`
}

// Restore replaces the worker's client by the one in the file that comes with it, which must be the
// same client at an earlier time. The worker answers with Restored.
type Restore struct {
	// Whole says that the file is that of a client whose program was saved too: the memory that it
	// shares with the program is restored as well, any client may be replaced by it, and it does
	// not continue until Proceed.
	Whole bool `json:"whole,omitempty"`
}

// Proceed lets a client continue that was held, and gives up a checkpoint for which the worker still
// waits until running work has finished: it is answered with an error.
type Proceed struct {
	// Save makes the worker first write the memory that the client shares with its program to the
	// file of the Checkpoint; the program does nothing meanwhile. The answer is Checkpointed.
	Save bool `json:"save,omitempty"`
}

// Neighbour tells a worker whose program is traced that another client got a device, or has left
// it. No answer is expected.
type Neighbour struct {
	// Client is the other's number.
	Client uint64 `json:"client"`
	// Device is the device's place in Serve.Devices.
	Device int `json:"device"`
	// On says that the other has it from now on.
	On bool `json:"on"`
	// Who is the other's program, if it belongs to the same user.
	Who string `json:"who,omitempty"`
	// At is when that was, in nanoseconds of the system's monotonic clock.
	At int64 `json:"at"`
}

// GrantFurther lends a device in addition to that of the lease, or more memory of one. If the device's
// contexts need processes of their own, a connection comes with it, by which the worker opens a context
// in another worker, as device/remote does (KindLent).
type GrantFurther struct {
	// Device is the device's place in Serve.Devices.
	Device int `json:"device"`
	// Memory is how many bytes of it the worker may take.
	Memory uint64 `json:"memory"`
	// Loan is the number of the loan; a loan of more memory has the same.
	Loan uint64 `json:"loan"`
}

// DenyFurther says that a further device, or more memory of it, is not available at present.
type DenyFurther struct {
	Device int `json:"device"`
}

// RevokeFurther takes a further device back. The worker answers with ReleasedFurther.
type RevokeFurther struct {
	Device int    `json:"device"`
	Loan   uint64 `json:"loan"`
	Reason string `json:"reason"`
}

// Beside tells a worker whose launches are mapped how busy devices are with the work of other
// programs. It is sent when the worker reports what ran, so that it follows what it is needed for. A
// device that is not named has none. No answer is expected.
type Beside struct {
	Devices []Busyness `json:"devices,omitempty"`
}

// Busyness is how busy a device is with the work of other programs.
type Busyness struct {
	// Device is the device's place in Serve.Devices.
	Device int `json:"device"`
	// Calls is how many programs had work there lately, in thousandths: one that has work there
	// half of the time counts 500.
	Calls int `json:"calls"`
	// Each is how long a kernel of theirs takes.
	Each time.Duration `json:"each"`
	// Age is how old this is: what another node said of its device may have been a while ago.
	Age time.Duration `json:"age,omitempty"`
}

// --- from a worker to the daemon ---------------------------------------------

// Want asks for a device.
type Want struct {
	// Memory is how many bytes the worker needs there.
	Memory uint64 `json:"memory"`
	// Estimate is how long it will use the device, from what was observed; 0 if nothing was.
	Estimate time.Duration `json:"estimate"`
	// Pinned is the only device that will do, or -1 for any.
	Pinned int `json:"pinned"`
}

// Grow asks for more memory on the device that the worker has.
type Grow struct {
	// Memory is how many bytes it needs in all.
	Memory uint64 `json:"memory"`
}

// Released gives the device back, in answer to Revoke or unasked.
type Released struct {
	// Lease is the number of the last Grant that the worker has seen.
	Lease uint64 `json:"lease"`
	// Keeps is how many bytes stay taken on the device, by a context that the worker leaves open
	// there and by memory that no other client needs.
	Keeps uint64 `json:"keeps"`
	// Took is how long moving the client's memory off the device took, once everything that ran
	// there had ended.
	Took time.Duration `json:"took,omitempty"`
}

// Freed says that a client which is leaving its device has freed part of what it had there: others
// may have it at once.
type Freed struct {
	Lease uint64 `json:"lease"`
	// Left is how many bytes it still takes, its context aside. It takes no more before it is
	// granted a device again.
	Left uint64 `json:"left"`
}

// Began says that the memory that the client needs is on the device that it was granted, and that
// the worker is about to launch the client's first kernel there.
type Began struct {
	// Lease is the number of the Grant.
	Lease uint64 `json:"lease"`
	// Took is how long that took: a context, and moving memory.
	Took time.Duration `json:"took"`
}

// Busy says that work of the client is in progress.
type Busy struct{}

// Idle says that no work of the client is in progress.
type Idle struct {
	// For is how long it has been idle already.
	For time.Duration `json:"for"`
}

// SyncPoint says that the client waits for other programs: its device may be lent meanwhile.
type SyncPoint struct{}

// Ran says what ran since the last Ran.
type Ran struct {
	// Kernels is how many kernels were launched.
	Kernels int `json:"kernels"`
	// Busy is how long the device was used.
	Busy time.Duration `json:"busy"`
	// Queued is how many launches there have not ended, of a client whose launches are mapped.
	Queued int `json:"queued,omitempty"`
}

// RanFurther says what ran on a further device since the last RanFurther for it.
type RanFurther struct {
	Device int `json:"device"`
	// Loan is the number of the loan.
	Loan uint64 `json:"loan"`
	// Kernels is how many kernels were launched, and Busy how long they ran.
	Kernels int           `json:"kernels"`
	Busy    time.Duration `json:"busy"`
	// Moved is how many bytes were copied there for them.
	Moved uint64 `json:"moved"`
	// Queued is how many launches there have not ended.
	Queued int `json:"queued,omitempty"`
}

// WantFurther asks for a device beside the one that the worker has, if no other client needs it, or
// for more memory of one that it was lent. The answer is GrantFurther or DenyFurther.
type WantFurther struct {
	// Device is the device's place in Serve.Devices.
	Device int `json:"device"`
	// Memory is how many bytes the worker needs there, in all.
	Memory uint64 `json:"memory"`
}

// ReleasedFurther gives a further device back, in answer to RevokeFurther or unasked. The client
// has no memory there any longer.
type ReleasedFurther struct {
	Device int `json:"device"`
	// Loan is the number of the loan.
	Loan uint64 `json:"loan"`
}

// Commit asks for room in the swap area.
type Commit struct {
	// Bytes is how many bytes the client's allocations take in all.
	Bytes uint64 `json:"bytes"`
}

// Report is what the worker has done so far.
type Report struct {
	Stats Stats `json:"stats"`
}

// Stats is what a worker has done so far, and what its client has. Sizes are in bytes. Kernels and
// their time are not here: Ran reports them.
type Stats struct {
	// Allocated is the device memory that the client has, Resident the part of it
	// on a device, and Swapped the part whose contents are on the host only.
	Allocated uint64 `json:"allocated"`
	Resident  uint64 `json:"resident"`
	Swapped   uint64 `json:"swapped"`
	// CopiedIn and CopiedOut are what the program copied to and from devices.
	CopiedIn  uint64 `json:"copied_in"`
	CopiedOut uint64 `json:"copied_out"`
	// SwapIn and SwapOut are what was moved to devices and from them to make room, or for a turn or a move.
	// What is copied for a base, and what comes to a device for the first time, is in Links alone.
	SwapIn  uint64 `json:"swap_in"`
	SwapOut uint64 `json:"swap_out"`
	// Swaps is how often the client's memory was moved off a device.
	Swaps uint64 `json:"swaps"`
	// Messages is how many messages the program has sent.
	Messages uint64 `json:"messages"`
	// Held is how long launches were held back for programs of class latency.
	Held time.Duration `json:"held,omitempty"`
	// Links are the bytes that went between places.
	Links []Link `json:"links,omitempty"`
}

// OnHost stands for the host's memory where a device's number could be.
const OnHost = -1

// Link is how many bytes went from one place of the node to another, by device number: because the
// client's memory was moved, or because its program copied them.
type Link struct {
	From  int    `json:"from"`
	To    int    `json:"to"`
	Bytes uint64 `json:"bytes"`
}

// AddLink adds bytes to the link between two places.
func AddLink(links []Link, more Link) []Link {
	for i := range links {
		if links[i].From == more.From && links[i].To == more.To {
			links[i].Bytes += more.Bytes
			return links
		}
	}
	return append(links, more)
}

// Failed says that a fault ended what ran. The worker no longer has the device.
type Failed struct {
	// Lease is the number of the last Grant that the worker has seen.
	Lease  uint64 `json:"lease"`
	Reason string `json:"reason"`
}

// CannotServe says that the worker cannot serve its client and is about to exit.
// The daemon tells the program the reason.
type CannotServe struct {
	Reason string `json:"reason"`
}

// Rebuild says that the worker cannot continue, and that another one can in its place. A worker
// that outlives daemons then waits to be killed, any other exits. The program was told nothing.
type Rebuild struct {
	// Device is where the client had something; -1 for nowhere.
	Device int `json:"device"`
	// Lost says that the device may be gone.
	Lost bool `json:"lost,omitempty"`
	// Shared says that the fault which ended the client's contexts may be another client's.
	Shared bool   `json:"shared,omitempty"`
	Reason string `json:"reason"`
}

// Rebuilt says that a client whose worker had died is in the state that it was in, and that the
// work which was launched again has ended.
type Rebuilt struct{}

// Ended says that the client has ended, for a reason that its program was told. The
// worker is about to exit.
type Ended struct {
	Reason string `json:"reason"`
	Fault  bool   `json:"fault,omitempty"` // what it ran failed
}

// Traced says that the program is traced: the daemon reports from now on which other clients have
// devices.
type Traced struct{}

// Pong answers Ping.
type Pong struct {
	// Number is the Ping's.
	Number uint64 `json:"number"`
}

// Probed answers Probe: the device works.
type Probed struct {
	// Free and Total are bytes of the device's memory, while the worker has a context there.
	Free  uint64 `json:"free"`
	Total uint64 `json:"total"`
}

// Standing is the first message of a worker to a daemon that has adopted it, apart from pings: the
// client's state after everything that the last daemon sent. Requests to that daemon which were not
// answered, the worker sends again.
type Standing struct {
	// Lease is the number of the last Grant that the worker has seen. If Held, the
	// client has Memory bytes of Device; if not, a context that is left open there
	// keeps Keeps bytes. Failed says that a fault ended what ran.
	Lease  uint64 `json:"lease"`
	Held   bool   `json:"held"`
	Device int    `json:"device"`
	Memory uint64 `json:"memory"`
	Keeps  uint64 `json:"keeps"`
	Failed bool   `json:"failed"`
	// Committed is the room in the swap area that it was granted.
	Committed uint64 `json:"committed"`
	// Kernels and Busy are the sums of what the worker has reported with Ran, to any daemon, since
	// it began: the last daemon may have died before it counted everything.
	Kernels uint64        `json:"kernels"`
	Busy    time.Duration `json:"busy"`
	// Devices are those that the worker knows, by their numbers.
	Devices []DeviceConfig `json:"devices"`
}

// Forgone answers Forgo: the context that was prepared takes no memory any more, or is the client's.
type Forgone struct{}

// Checkpointed answers Checkpoint, and a Proceed that saves.
type Checkpointed struct {
	// Held says that the client does not continue, and that the file is not complete before a
	// Proceed that saves.
	Held bool `json:"held,omitempty"`
	// Bytes is how long the file is.
	Bytes uint64 `json:"bytes"`
	// Error says why the client was not saved; "" if it was.
	Error string `json:"error,omitempty"`
}

// Restored answers Restore.
type Restored struct {
	// Bytes is how much memory the client has now.
	Bytes uint64 `json:"bytes"`
	// Error says why the client was left as it was; "" if it was restored.
	Error string `json:"error,omitempty"`
}

func (Serve) Kind() string     { return "serve" }
func (Grant) Kind() string     { return "grant" }
func (Deny) Kind() string      { return "deny" }
func (Revoke) Kind() string    { return "revoke" }
func (Lost) Kind() string      { return "lost" }
func (Renew) Kind() string     { return "renew" }
func (Watch) Kind() string     { return "watch" }
func (Parked) Kind() string    { return "parked" }
func (Committed) Kind() string { return "committed" }
func (Ping) Kind() string      { return "ping" }
func (Probe) Kind() string     { return "probe" }
func (Prepare) Kind() string   { return "prepare" }
func (Forgo) Kind() string     { return "forgo" }
func (Hold) Kind() string      { return "hold" }
func (End) Kind() string       { return "end" }
func (AddDevice) Kind() string { return "add_device" }

func (Checkpoint) Kind() string { return "checkpoint" }
func (Restore) Kind() string    { return "restore" }
func (Proceed) Kind() string    { return "proceed" }
func (Neighbour) Kind() string  { return "neighbour" }

func (GrantFurther) Kind() string  { return "grant_further" }
func (DenyFurther) Kind() string   { return "deny_further" }
func (Beside) Kind() string        { return "beside" }
func (RevokeFurther) Kind() string { return "revoke_further" }

func (Want) Kind() string        { return "want" }
func (Grow) Kind() string        { return "grow" }
func (Released) Kind() string    { return "released" }
func (Began) Kind() string       { return "began" }
func (Freed) Kind() string       { return "freed" }
func (Busy) Kind() string        { return "busy" }
func (Idle) Kind() string        { return "idle" }
func (SyncPoint) Kind() string   { return "sync_point" }
func (Ran) Kind() string         { return "ran" }
func (Commit) Kind() string      { return "commit" }
func (Report) Kind() string      { return "report" }
func (Failed) Kind() string      { return "failed" }
func (CannotServe) Kind() string { return "cannot_serve" }
func (Pong) Kind() string        { return "pong" }
func (Probed) Kind() string      { return "probed" }
func (Rebuild) Kind() string     { return "rebuild" }
func (Rebuilt) Kind() string     { return "rebuilt" }
func (Ended) Kind() string       { return "ended" }
func (Standing) Kind() string    { return "standing" }
func (Traced) Kind() string      { return "traced" }
func (Forgone) Kind() string     { return "forgone" }

func (WantFurther) Kind() string     { return "want_further" }
func (ReleasedFurther) Kind() string { return "released_further" }
func (RanFurther) Kind() string      { return "ran_further" }

func (Checkpointed) Kind() string { return "checkpointed" }
func (Restored) Kind() string     { return "restored" }

func (Serve) toWorker()     {}
func (Grant) toWorker()     {}
func (Deny) toWorker()      {}
func (Revoke) toWorker()    {}
func (Lost) toWorker()      {}
func (Renew) toWorker()     {}
func (Watch) toWorker()     {}
func (Parked) toWorker()    {}
func (Committed) toWorker() {}
func (Ping) toWorker()      {}
func (Probe) toWorker()     {}
func (Prepare) toWorker()   {}
func (Forgo) toWorker()     {}
func (Hold) toWorker()      {}
func (End) toWorker()       {}
func (AddDevice) toWorker() {}

func (Checkpoint) toWorker() {}
func (Restore) toWorker()    {}
func (Proceed) toWorker()    {}
func (Neighbour) toWorker()  {}

func (GrantFurther) toWorker()  {}
func (DenyFurther) toWorker()   {}
func (Beside) toWorker()        {}
func (RevokeFurther) toWorker() {}

func (Want) toDaemon()        {}
func (Grow) toDaemon()        {}
func (Released) toDaemon()    {}
func (Began) toDaemon()       {}
func (Freed) toDaemon()       {}
func (Busy) toDaemon()        {}
func (Idle) toDaemon()        {}
func (SyncPoint) toDaemon()   {}
func (Ran) toDaemon()         {}
func (Commit) toDaemon()      {}
func (Report) toDaemon()      {}
func (Failed) toDaemon()      {}
func (CannotServe) toDaemon() {}
func (Pong) toDaemon()        {}
func (Probed) toDaemon()      {}
func (Rebuild) toDaemon()     {}
func (Rebuilt) toDaemon()     {}
func (Ended) toDaemon()       {}
func (Standing) toDaemon()    {}
func (Traced) toDaemon()      {}
func (Forgone) toDaemon()     {}

func (WantFurther) toDaemon()     {}
func (ReleasedFurther) toDaemon() {}
func (RanFurther) toDaemon()      {}

func (Checkpointed) toDaemon() {}
func (Restored) toDaemon()     {}

func (s Serve) check() error {
	if u := s.User; u != nil {
		if err := notNegative("user", u.UID); err != nil {
			return err
		}
		if err := notNegative("own user", u.Own); err != nil {
			return err
		}
		if err := notNegative("group", u.GID); err != nil {
			return err
		}
		for _, g := range u.Groups {
			if err := notNegative("group", g); err != nil {
				return err
			}
		}
	}
	for _, d := range s.Devices {
		if err := d.check(); err != nil {
			return err
		}
	}
	if err := errors.Join(s.Pace.check(), s.MPS.check()); err != nil {
		return err
	}
	return notNegative("orphan grace", s.OrphanGrace)
}

func (p *Pace) check() error {
	if p != nil && (p.Share < 0 || p.Share >= 1 || p.Window < 0 || p.Quantum < 0) {
		return fmt.Errorf("a share of %g, a window of %v and a quantum of %v", p.Share, p.Window, p.Quantum)
	}
	return nil
}

func (m *MPS) check() error {
	if m != nil && m.Share < 0 {
		return fmt.Errorf("a share of %d %% of the multiprocessors", m.Share)
	}
	return nil
}

func (d DeviceConfig) check() error {
	if err := notNegative("index", d.Index); err != nil {
		return err
	}
	if err := notNegative("workers", d.Workers); err != nil {
		return err
	}
	if d.Speed < 0 {
		return fmt.Errorf("a speed of %g", d.Speed)
	}
	return nil
}

func (m Grant) check() error   { return notNegative("device", m.Device) }
func (Deny) check() error      { return nil }
func (Revoke) check() error    { return nil }
func (m Lost) check() error    { return notNegative("device", m.Device) }
func (Watch) check() error     { return nil }
func (Parked) check() error    { return nil }
func (Committed) check() error { return nil }
func (Ping) check() error      { return nil }
func (m Probe) check() error   { return m.Device.check() }
func (m Prepare) check() error { return errors.Join(m.Device.check(), m.MPS.check(), m.Pace.check()) }
func (Forgo) check() error     { return nil }
func (Forgone) check() error   { return nil }
func (Hold) check() error      { return nil }
func (End) check() error       { return nil }

func (m AddDevice) check() error {
	if err := notNegative("device", m.Device); err != nil {
		return err
	}
	return m.Config.check()
}

func (Checkpoint) check() error { return nil }
func (Restore) check() error    { return nil }
func (Proceed) check() error    { return nil }

func (m Renew) check() error {
	if m.Device < -1 {
		return fmt.Errorf("a fault on device %d: give -1 for none", m.Device)
	}
	return nil
}
func (m Neighbour) check() error { return notNegative("device", m.Device) }

func (m GrantFurther) check() error  { return notNegative("device", m.Device) }
func (m DenyFurther) check() error   { return notNegative("device", m.Device) }
func (m RevokeFurther) check() error { return notNegative("device", m.Device) }

func (m Beside) check() error {
	for _, b := range m.Devices {
		for _, err := range []error{notNegative("device", b.Device), notNegative("calls of others", b.Calls), notNegative("time of a kernel", b.Each), notNegative("age", b.Age)} {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (m WantFurther) check() error     { return notNegative("device", m.Device) }
func (m ReleasedFurther) check() error { return notNegative("device", m.Device) }

func (m RanFurther) check() error {
	if err := notNegative("device", m.Device); err != nil {
		return err
	}
	return Ran{Kernels: m.Kernels, Busy: m.Busy, Queued: m.Queued}.check()
}

func (m Want) check() error {
	if m.Pinned < -1 {
		return fmt.Errorf("pinned to device %d: give -1 for any", m.Pinned)
	}
	return notNegative("estimate", m.Estimate)
}

func (Grow) check() error       { return nil }
func (Freed) check() error      { return nil }
func (m Released) check() error { return notNegative("took", m.Took) }
func (m Began) check() error    { return notNegative("took", m.Took) }
func (Busy) check() error       { return nil }
func (m Idle) check() error     { return notNegative("idle time", m.For) }
func (SyncPoint) check() error  { return nil }

func (m Ran) check() error {
	if err := notNegative("number of kernels", m.Kernels); err != nil {
		return err
	}
	if err := notNegative("number of launches in the queue", m.Queued); err != nil {
		return err
	}
	return notNegative("busy time", m.Busy)
}

func (Commit) check() error { return nil }
func (m Report) check() error {
	for _, l := range m.Stats.Links {
		if l.From < OnHost || l.To < OnHost {
			return fmt.Errorf("a link from %d to %d", l.From, l.To)
		}
	}
	return notNegative("held", m.Stats.Held)
}

func (Failed) check() error      { return nil }
func (CannotServe) check() error { return nil }
func (Pong) check() error        { return nil }
func (p Probed) check() error {
	if p.Free > p.Total {
		return fmt.Errorf("%d of %d bytes are free", p.Free, p.Total)
	}
	return nil
}
func (Rebuilt) check() error { return nil }
func (Ended) check() error   { return nil }
func (Traced) check() error  { return nil }

func (m Rebuild) check() error {
	if m.Device < -1 {
		return fmt.Errorf("device %d: give -1 for none", m.Device)
	}
	return nil
}

func (m Standing) check() error {
	if err := notNegative("device", m.Device); err != nil {
		return err
	}
	for _, d := range m.Devices {
		if err := d.check(); err != nil {
			return err
		}
	}
	return notNegative("busy time", m.Busy)
}

func (Checkpointed) check() error { return nil }
func (Restored) check() error     { return nil }

func notNegative[N int | time.Duration](what string, n N) error {
	if n < 0 {
		return fmt.Errorf("a negative %s: %v", what, n)
	}
	return nil
}
