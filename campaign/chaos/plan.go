package chaos

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
)

// The parts of a plan. Each has its own random numbers, so that the duration of one thing does not
// change what is drawn later.
const (
	drawsNode = iota
	drawsProgram
	drawsFault
)

func draws(seed uint64, episode, part, number int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(episode)<<40|uint64(part)<<32|uint64(number)))
}

// fault is a fault of a plan. Its victim is chosen among those present when it is injected.
type fault struct {
	number int
	kind   Kind
	gap    uint64  // kernels between the previous fault and this one
	choice float64 // of the victim, in [0, 1)
	device float64 // of the device, in [0, 1)
	length uint64  // kernels until it is undone, if it is temporary
}

func (f fault) String() string { return fmt.Sprintf("fault %d: %s", f.number, f.kind) }

// pick selects one of n by a choice in [0, 1).
func pick(choice float64, n int) int { return min(int(choice*float64(n)), n-1) }

// drawFault draws the fault with a number.
func drawFault(seed uint64, episode, number int, kinds []Kind) fault {
	r := draws(seed, episode, drawsFault, number)
	all := 0
	for _, k := range kinds {
		all += k.weight()
	}
	f := fault{number: number, gap: uint64(1 + r.IntN(60)), choice: r.Float64(), device: r.Float64(), length: uint64(1 + r.IntN(80))}
	if r.IntN(6) == 0 {
		f.gap = 0 // it follows immediately, and meets the effects of the previous one
	}
	at := r.IntN(all)
	for _, k := range kinds {
		if at -= k.weight(); at < 0 {
			f.kind = k
			return f
		}
	}
	return f
}

// deviceSpec is a software GPU of a plan.
type deviceSpec struct {
	name    string
	memory  int // MiB
	speed   string
	workers int
}

// nodeSpec is a node of a plan.
type nodeSpec struct {
	devices []deviceSpec
	vgpus   int
	policy  string
	maxIdle string
	warm    int
	deferIn bool
	swap    string // "memory", "folder", or "disk" for a small disk of its own
	records bool
	migrate string
	remote  bool // a third of the programs use the gateway, as from another machine
	granted bool // another third are under a grant of a part of the first device, which reaches the node
	kinds   []Kind
}

// drawNode draws a node, and the kinds of faults that it meets. These are not always all kinds,
// because one kind may hide the effects of another, such as a leak in a daemon that is restarted
// often.
func drawNode(seed uint64, episode int, kinds []Kind, canMount bool) nodeSpec {
	r := draws(seed, episode, drawsNode, 0)
	word := func(words ...string) string { return words[r.IntN(len(words))] }
	s := nodeSpec{
		vgpus: 1 + r.IntN(4), policy: word("fcfs", "sjf", "credit"), maxIdle: word("1ms", "10ms"),
		warm: r.IntN(3), deferIn: r.IntN(4) == 0, swap: word("memory", "folder", "disk"), records: r.IntN(3) == 0, remote: r.IntN(4) == 0, migrate: word("auto", "off"),
		granted: draws(seed, episode, drawsNode, 1).IntN(2) == 0,
	}
	for i := range 2 + r.IntN(2) {
		s.devices = append(s.devices, deviceSpec{fmt.Sprintf("gpu%d", i), 2 * (6 + r.IntN(8)), word("1", "1", "0.5"), 1})
	}
	s.kinds = slices.Clone(kinds)
	if r.IntN(2) == 0 {
		s.kinds = some(r, kinds)
	}
	if !canMount && s.swap == "disk" {
		s.swap = "folder"
	}
	if s.swap != "disk" {
		s.kinds = slices.DeleteFunc(s.kinds, func(k Kind) bool { return k == DiskFull })
	}
	if len(s.kinds) == 0 { // DiskFull was the only kind
		s.swap, s.kinds = "disk", slices.Clone(kinds)
	}
	return s
}

// some draws half of the kinds, and at least one.
func some(r *rand.Rand, kinds []Kind) []Kind {
	var chosen []Kind
	for _, k := range kinds {
		if r.IntN(2) == 0 {
			chosen = append(chosen, k)
		}
	}
	if len(chosen) == 0 {
		chosen = append(chosen, kinds[r.IntN(len(kinds))])
	}
	return chosen
}

// swapSize is the size of the whole swap area, in MiB. The small disk is slightly larger.
const swapSize = 256

// file is the node's configuration. The rules for failing devices are in a folder, beside the
// trigger files that they look for.
func (s nodeSpec) file(socket, rules, swapDir, record string, settings ...string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("name: chaos")
	line("socket: %q", socket)
	line("devices:")
	for _, d := range s.devices {
		line("  - soft: {name: %s, memory: %dMiB, speed: %s, workers: %d}", d.name, d.memory, d.speed, d.workers)
		line("    faults: %s", filepath.Join(rules, d.name))
	}
	line("vgpus: %d", s.vgpus)
	line("policy: %s", s.policy)
	line("max_idle: %s", s.maxIdle)
	line("migrate: %s", s.migrate)
	line("warm: %d", s.warm)
	line("defer: %v", s.deferIn)
	line("worker_timeout: %v", workerTimeout)
	line("grace: 1s")
	if swapDir == "" {
		line("swap: {size: %dMiB}", swapSize)
	} else {
		line("swap: {size: %dMiB, dir: %s}", swapSize, swapDir)
	}
	for _, setting := range settings {
		line("%s", setting)
	}
	if record != "" {
		line("record: {file: %s}", record)
	}
	return b.String()
}

// trigger is the file that a fault of a kind creates for a device.
func trigger(rules, device string, k Kind) string {
	return filepath.Join(rules, "now", string(k)+"-"+device)
}

// ruleFile has the rules of a device. No rule applies until its trigger file exists.
func ruleFile(rules, device string) string {
	at := func(k Kind) string { return trigger(rules, device, k) }
	return fmt.Sprintf(`any:while=%s:fail=device-lost
launch:take=%s:fail=illegal-address
launch:take=%s:fail=device-lost
copyin:take=%s:fail=device-lost
copyout:take=%s:fail=device-lost
map:take=%s:fail=out-of-memory
copyout:take=%s:corrupt
`, at(DeviceLost), at(LaunchFail), at(LaunchLost), at(CopyLost), at(CopyLost), at(MapFail), at(SabotageResult))
}
