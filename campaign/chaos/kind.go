package chaos

import "muster/campaign/kinds"

// Kind is a kind of fault.
type Kind string

// The kinds of faults. Temporary ones (a pause, a missing device) are undone a few kernels later.
const (
	WorkerKill   Kind = "worker-kill"   // a worker gets SIGKILL
	WorkerStop   Kind = "worker-stop"   // a worker is stopped forever, until the daemon kills it
	WorkerPause  Kind = "worker-pause"  // a worker is stopped and continued
	ClientKill   Kind = "client-kill"   // all processes of a program get SIGKILL
	ClientPause  Kind = "client-pause"  // a program is stopped and continued
	DaemonKill   Kind = "daemon-kill"   // the daemon gets SIGKILL, and is started again
	DaemonPause  Kind = "daemon-pause"  // the daemon is stopped and continued
	Handover     Kind = "handover"      // the daemon hands over to the next one
	DeviceLost   Kind = "device-lost"   // all calls of a device fail for a time
	DeviceDrain  Kind = "device-drain"  // a device is drained, and resumed
	DeviceRemove Kind = "device-remove" // a device is removed, and another one added
	Move         Kind = "move"          // a program is moved to another device
	LaunchFail   Kind = "launch-fail"   // a launch fails as if the kernel were faulty
	LaunchLost   Kind = "launch-lost"   // a launch fails as if the device were gone
	CopyLost     Kind = "copy-lost"     // a copy fails as if the device were gone
	MapFail      Kind = "map-fail"      // the device has no memory, once
	DiskFull     Kind = "disk-full"     // the disk of the swap area is filled, and freed again
)

// Kinds of sabotage are for tests of the checks themselves: they do what no fault may do, without
// reporting it.
const (
	SabotageResult     Kind = "sabotage-result"     // a bit of a result is wrong
	SabotageKill       Kind = "sabotage-kill"       // a neighbour is killed
	SabotageHang       Kind = "sabotage-hang"       // a program never ends
	SabotageProcess    Kind = "sabotage-process"    // a process is left behind
	SabotageFile       Kind = "sabotage-file"       // a file is left behind in the swap area
	SabotageDescriptor Kind = "sabotage-descriptor" // the daemon keeps a descriptor
)

// Kinds are the default kinds of a campaign.
var Kinds = []Kind{
	WorkerKill, WorkerStop, WorkerPause, ClientKill, ClientPause, DaemonKill, DaemonPause, Handover,
	DeviceLost, DeviceDrain, DeviceRemove, Move, LaunchFail, LaunchLost, CopyLost, MapFail, DiskFull,
}

var sabotage = []Kind{SabotageResult, SabotageKill, SabotageHang, SabotageProcess, SabotageFile, SabotageDescriptor}

// weights are the relative frequencies of kinds; 1 if not listed. Those that take long are rarer.
var weights = map[Kind]int{
	WorkerKill: 6, ClientKill: 4, WorkerPause: 2, ClientPause: 2, Move: 3, LaunchLost: 3, CopyLost: 3, DeviceDrain: 2, DeviceLost: 2,
}

func (k Kind) weight() int { return max(1, weights[k]) }

// ParseKinds parses kinds of faults: see kinds.Parse.
func ParseKinds(text string) ([]Kind, error) { return kinds.Parse(text, "fault", Kinds, sabotage...) }
