package clientcore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// launches launches kernels.
type launches struct {
	*standing
	streams     *streams
	hosts       *hosts
	memory      *memory
	shared      *shared
	modules     *modules
	textures    *textures
	loans       *loans
	mapped      *mapped
	activity    *activity
	arrival     *arrival
	allocations *allocations

	// watched is what kernels that follow pointers were seen to use: allocations, by their first address. One that
	// was freed is removed when it is next looked up.
	watched map[Kernel]map[uint64]bool

	keepsHome bool // all launches run on the device of the lease for now (KeepHome)

	shares         []vmm.Share // buffers
	words, written []byte
}

func (l *launches) register(h *handlers) { h[wire.OpLaunch] = decoding(l.launch) }

// Flags of a launch.
const (
	cooperative = 1 << iota
	largeCluster
)

// launch launches a kernel, on the client's device or on one that it gets first.
func (l *launches) launch(m *Message, d *wire.Launch) (bool, error) {
	f, ok := l.modules.Functions[d.Function]
	if !ok {
		return true, fmt.Errorf("function %d: %w", d.Function, errHandle)
	}
	st, err := l.streams.find(d.Stream)
	if err != nil {
		return true, err
	}
	if len(d.Params) != f.Info.ParamSize {
		return true, fmt.Errorf("%d bytes of parameters for kernel %s, which takes %d: %w", len(d.Params), f.Info.Name, f.Info.ParamSize, device.ErrInvalidValue)
	}
	if f.Info.Heap {
		if ok, err := l.allocations.provideHeap(); !ok || err != nil {
			return ok, err
		}
	}
	run := launching{}
	if l.mapped != nil {
		if run, err = l.mapLaunch(&f, d.Function, d.Params); err != nil {
			return true, fmt.Errorf("kernel %s: %w", f.Info.Name, err)
		}
		if run.waits {
			return false, nil
		}
	}
	if !run.mapped && !l.arrival.isReady() {
		ok, err := l.arrival.ready(l.arrival.needs(d.Params))
		if err != nil {
			return true, fmt.Errorf("kernel %s: %w", f.Info.Name, err)
		}
		if !ok {
			return false, nil
		}
	}
	if err := l.modules.usable(&f); err != nil {
		return true, err
	}
	l.begun()
	home, ticket := l.place(), uint64(0)
	if run.mapped {
		ticket = l.mapped.took()
	} else {
		run.at = home
	}
	l.activity.launched(run.at == home)
	l.streams.give(d.Stream, st, run.at)
	if !run.mapped || len(run.written) > 0 {
		l.memory.space.Launched(run.at, run.written)
	}
	if l.mapped != nil && !run.mapped {
		run.guard = l.watch(&f, d.Function)
	}
	o := l.next(Launch)
	o.Place, o.Stream, o.Module, o.Function, o.Name, o.Ticket, o.Guard = run.at, d.Stream, f.Module, d.Function, f.Info.Name, ticket, run.guard
	if o.How = howOf(d); l.hosts.Outstanding() > 0 { // the ring may be read ahead while the launch waits
		o.How.Params = bytes.Clone(d.Params)
	}
	return true, nil
}

// howOf returns the launch parameters of a message.
func howOf(d *wire.Launch) device.Launch {
	return device.Launch{
		Grid: device.Dim{X: d.GridX, Y: d.GridY, Z: d.GridZ}, Block: device.Dim{X: d.BlockX, Y: d.BlockY, Z: d.BlockZ},
		Shared: uint64(d.Shared), Stack: d.Stack, Params: d.Params, Cooperative: d.Flags&cooperative != 0,
		Cluster: device.Dim{X: d.ClusterX, Y: d.ClusterY, Z: d.ClusterZ}, LargeCluster: d.Flags&largeCluster != 0,
	}
}

// reach returns the memory that a launch uses, and the part that the kernel may write, sorted by
// address; false if it may use anything.
func (l *launches) reach(f *Function, params []byte) (used, written []vmm.Range, known bool) {
	t := f.Info.Touches
	if t == nil {
		return nil, nil, false
	}
	l.words, l.written = l.words[:0], l.written[:0]
	for i := range t.Accesses {
		a := &t.Accesses[i]
		found, null := false, true
		for _, w := range a.Words {
			if 8*w+8 > len(params) {
				return nil, nil, false
			}
			word := params[8*w : 8*w+8]
			addr := binary.LittleEndian.Uint64(word)
			null = null && addr == 0
			if r := (vmm.Range{Addr: addr, Size: 1}); l.shared.sharesRange(r) || l.memory.mapsHost(r) {
				found = true // every context has it
				continue
			}
			if r, ok := l.memory.space.Find(addr); ok {
				found = true
				l.touches(addr, a.Writes)
				// A pointer to the end of an allocation, or one element before its beginning, may lie in
				// the neighbour. Large allocations have none, small ones mostly share its chunk.
				if addr == r.Addr {
					if _, ok := l.memory.space.Find(addr - 1); ok {
						l.touches(addr-1, a.Writes)
					}
				}
				if end := r.Addr + r.Size; end-addr <= largestElement {
					if _, ok := l.memory.space.Find(end); ok {
						l.touches(end, a.Writes)
					}
				}
			}
		}
		if !found && !null { // a variable, or an address outside any allocation
			return nil, nil, false
		}
	}
	used = l.memory.space.Reachable(l.words)
	if len(l.written) == len(l.words) {
		return used, used, true
	}
	return used, l.memory.space.Reachable(l.written), true
}

// largestElement is how many bytes an element of an array has at most, for pointers to the one before
// the first.
const largestElement = 16

// touches adds the allocation around an address to what a launch uses.
func (l *launches) touches(addr uint64, writes bool) {
	l.words = binary.LittleEndian.AppendUint64(l.words, addr)
	if writes {
		l.written = binary.LittleEndian.AppendUint64(l.written, addr)
	}
}

// stays returns why a launch must run at home, whatever the mapper would say; "" if it need not.
func (l *launches) stays(f *Function) string {
	switch {
	case l.keepsHome:
		return "the client is being rebuilt, and could not be with the help of other devices"
	case l.arrival.Together:
		return "streams of the program wait for words in memory"
	case l.hosts.Outstanding() > 0:
		return "a function of the program has not returned"
	case len(l.config.Devices) < 2:
		return "the node has one device"
	case !l.config.puts && l.modules.Variables > 0:
		return "the devices cannot put variables where the program knows them"
	case f.Info.Touches == nil && !f.Info.Follows:
		return "the kernel may use anything: variables, textures, or what functions do that it calls"
	case f.Info.Touches == nil && !l.guards(f):
		return "the kernel follows pointers in memory, and its device cannot guard it, or the program has variables"
	}
	return ""
}

// KeepHome has all launches run on the device of the lease from now on, or ends that. So a client that
// is rebuilt depends on no other device, which may fail again.
func (l *launches) KeepHome(on bool) { l.keepsHome = on }

// launching is the result of mapLaunch.
type launching struct {
	mapped  bool // the mapper chose at, and everything is there; else the launch runs at home, with all memory
	waits   bool // the message must wait
	at      vmm.Place
	written []vmm.Range // the memory that the kernel may write
	guard   *Guarded    // if not nil, the kernel may use nothing else; nil if its code tells what it uses
}

// mapLaunch chooses the device of a launch and has the memory it uses brought there.
func (l *launches) mapLaunch(f *Function, number uint32, params []byte) (launching, error) {
	m, why := l.mapped, l.stays(f)
	if why != "" {
		return m.staysHome(f, why), nil
	}
	used, written, guard, why := l.uses(f, Kernel{f.Module, number}, params)
	if why != "" {
		return m.staysHome(f, why), nil
	}
	if ok, err := l.arrival.leased(l.arrival.needs(params)); !ok || err != nil {
		return launching{waits: !ok}, err
	}
	if x := l.here(); x == nil || !l.modules.allPlaced(x) || len(l.textures.lacksTextures(x)) > 0 {
		if ok, err := l.arrival.ready(need{}); !ok || err != nil {
			return launching{waits: !ok}, err
		}
	}
	if !m.home {
		l.loans.wantFurther(l.arrival.bytes(need{all: true}))
	}
	if !m.hasChosen() {
		shares, bytes := l.memory.space.Shares(used, l.shares[:0])
		l.shares = shares
		if err := m.choose(f, number, shares, bytes); err != nil {
			return launching{}, err
		}
	}
	at := l.config.Devices[m.choice.device].Place
	if guard != nil && at == l.place() {
		return launching{}, nil // at home it has all memory, and the core need not wait for it
	}
	if guard != nil && (!l.config.Devices[m.choice.device].Guards || l.arrival.room(at) < l.memory.space.Chunked()) {
		return m.staysHome(f, "the kernel follows pointers in memory, and the other device cannot guard it, or has no room for all memory"), nil
	}
	ok, err := l.arrival.readyAt(at, f.Module, used)
	if err != nil && m.choice.device != l.Lease.Device { // it does not fit there
		m.chooseHome()
		if guard != nil {
			return launching{}, nil
		}
		at = l.place()
		ok, err = l.arrival.readyAt(at, f.Module, used)
	}
	if guard != nil {
		guard.Ranges = l.wholeChunks(used)
	}
	return launching{mapped: true, waits: !ok, at: at, written: written, guard: guard}, err
}

// uses returns the memory that a launch uses, the part that the kernel may write, and its guard if
// that is known only from earlier launches; or why the launch stays at home.
func (l *launches) uses(f *Function, k Kernel, params []byte) (used, written []vmm.Range, guard *Guarded, why string) {
	if f.Info.Touches == nil {
		used, known := l.expected(k, params)
		if !known {
			return nil, nil, nil, "nothing is known yet of what the kernel uses, which follows pointers in memory: it is watched"
		}
		return used, used, &Guarded{Traps: true, Kernel: k}, ""
	}
	used, written, known := l.reach(f, params)
	if !known {
		return nil, nil, nil, "a parameter points to a variable, or to no memory of the program"
	}
	return used, written, nil, ""
}

// Kernels that follow pointers in memory. Their parameters do not tell what they use. But devices
// that guard launches report what a kernel has used, and stop a kernel before it uses anything
// unexpected. So:
//
//   - A kernel about which nothing is known runs at home, with all memory, and is watched there.
//   - From then on it is expected to use what it used before, what its parameters point to, and what is
//     declared as nested in any of that (wire.MemNest). With that it may run elsewhere, under guard:
//     before it uses anything else it is stopped, the memory is brought, and it goes on (Trapped).
//
// When memory is brought, the directory must be as it was at the launch. So the executor waits for
// a guarded launch before it handles the client's next message, and nothing else runs on that
// device meanwhile. A deadlock is not possible: whatever must end first on another device was
// launched earlier, and waits for neither.

// Guarded is how a launch is watched or guarded.
type Guarded struct {
	// Ranges are what the kernel may use, in whole chunks; or, if it is only watched, the units in
	// which its use is reported.
	Ranges []vmm.Range
	// Traps says that the kernel may use nothing else until Trapped has brought it; otherwise it is
	// only watched.
	Traps  bool
	Kernel Kernel
}

// Kernel identifies a kernel during the life of its module.
type Kernel struct {
	Module   uint64
	Function uint32
}

// mostWatched is how many allocations of a kernel are remembered. A kernel that uses more stays at
// home.
const mostWatched = 4096

// guards says whether a kernel can run elsewhere under guard. It cannot if there are variables:
// these are in one context only, and pointers in memory may lead to them.
func (l *launches) guards(f *Function) bool {
	return f.Info.Follows && !l.modules.hasVariables() && slices.ContainsFunc(l.config.Devices, func(d Device) bool { return d.Guards })
}

// expected returns what a kernel that follows pointers is expected to use, sorted by address; false
// if nothing is known about it.
func (l *launches) expected(k Kernel, params []byte) ([]vmm.Range, bool) {
	seen := l.watched[k]
	if seen == nil && !l.memory.space.Nests(params) {
		return nil, false
	}
	// Reachable reads 8-byte words: the parameters, padded to whole words, and the addresses of the
	// allocations seen before.
	l.words = append(l.words[:0], params...)
	l.words = append(l.words[:len(l.words):len(l.words)], make([]byte, -len(l.words)&7)...)
	if seen != nil {
		if len(seen) > mostWatched {
			return nil, false
		}
		for _, addr := range slices.Sorted(maps.Keys(seen)) {
			if r, ok := l.memory.space.Find(addr); !ok || r.Addr != addr {
				delete(seen, addr)
				continue
			}
			l.words = binary.LittleEndian.AppendUint64(l.words, addr)
		}
	}
	return l.memory.space.Reachable(l.words), true
}

// watch returns how a launch at home is watched; nil if its kernel is known already.
func (l *launches) watch(f *Function, number uint32) *Guarded {
	k := Kernel{f.Module, number}
	if l.mapped.home || l.watched[k] != nil || len(l.config.Devices) < 2 || !l.guards(f) || !l.config.Devices[l.Lease.Device].Guards {
		return nil
	}
	return &Guarded{Ranges: l.wholeChunks(l.memory.space.Allocations()), Kernel: k}
}

// wholeChunks extends ranges, sorted by address, to whole chunks. Those that share a chunk become
// one.
func (l *launches) wholeChunks(ranges []vmm.Range) []vmm.Range {
	chunk := l.config.Chunk
	var all []vmm.Range
	for _, r := range ranges {
		from, to := r.Addr&^(chunk-1), (r.Addr+r.Size+chunk-1)&^(chunk-1)
		if n := len(all) - 1; n >= 0 && from < all[n].Addr+all[n].Size {
			all[n].Size = max(all[n].Size, to-all[n].Addr)
			continue
		}
		all = append(all, vmm.Range{Addr: from, Size: to - from})
	}
	return all
}

// Seen is what a watched kernel has used.
type Seen struct {
	Kernel Kernel
	Used   []vmm.Range
}

// Observed says what a watched kernel has used. It may be called whenever no operation is being
// performed, and causes none.
func (l *launches) Observed(s Seen) {
	if l.mapped == nil {
		return
	}
	seen := l.watches(s.Kernel)
	all := l.memory.space.Allocations()
	for _, r := range s.Used {
		i, _ := slices.BinarySearchFunc(all, r.Addr, func(a vmm.Range, addr uint64) int {
			if a.Addr+a.Size <= addr {
				return -1
			}
			return 1
		})
		for ; i < len(all) && all[i].Addr < r.Addr+r.Size; i++ {
			seen[all[i].Addr] = true
		}
	}
}

// watches returns what a kernel was seen to use.
func (l *launches) watches(k Kernel) map[uint64]bool {
	if l.watched[k] == nil {
		l.watched[k] = map[uint64]bool{}
	}
	return l.watched[k]
}

// Trapped is called when a guarded kernel is about to use unexpected memory. It returns the plan of
// what must be moved first, and the memory that the kernel may then use; false if the client has
// none there. The executor performs the plan while the kernel is stopped, and nothing else runs on
// that device.
func (l *launches) Trapped(at vmm.Place, k Kernel, addr uint64) (vmm.Plan, vmm.Range, bool) {
	if s := l.shared.sharedAt(addr); s != nil { // every context has it
		return nil, vmm.Range{Addr: s.Addr, Size: s.Size}, true
	}
	r, ok := l.memory.space.Find(addr)
	if !ok {
		return nil, r, false
	}
	plan, err := l.memory.space.Prepare(at, []vmm.Range{r}, l.arrival.room(at))
	if err != nil {
		return nil, r, false
	}
	l.memory.space.Launched(at, []vmm.Range{r})
	l.memory.arrived(plan)
	l.memory.count(plan)
	if f := l.loans.further(at.Index()); f != nil {
		f.Moved += plan.Arrives()
	}
	l.watches(k)[r.Addr] = true
	return plan, l.wholeChunks([]vmm.Range{r})[0], true
}
