package node

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"muster/device"
	"muster/node/ask"
	"muster/node/grants"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/status"
)

// Further devices of clients whose launches are mapped. To the dispatcher, each loan of such a
// device is a client of its own, pinned to that device, so placing, memory, drains and losses need
// no special rules. A loan is made only while the device has room and no client waits. As soon as
// the dispatcher watches it, it reports a synchronisation point: so it is the first to leave when
// another client needs its slot or its memory. Loans end with the worker that has them and are not
// written down: the next daemon has none.

// loan is a device that a client has beside that of its lease.
type loan struct {
	id      vgpu.ClientID // its client number with the dispatcher, and its number with the worker
	client  *client
	device  vgpu.DeviceID
	share   int    // the device's place in the client's grant
	memory  uint64 // how much of it the worker may use
	granted bool
	ran     bool          // a kernel has run there
	way     *net.UnixConn // to the worker, if it opens the device in another one; nil: it does not
	carrier *client       // the other worker's client, which stands for it with the dispatcher; nil: none yet
}

// loans are all of them. Only the loop uses them, save offer.
type loans struct {
	common
	grants *grants.Book
	tally  *tally.Book
	all    map[vgpu.ClientID]*loan // by their numbers

	tellBeside func(*client)
	end        func(c *client, reason string, kill bool)
	serve      func(*net.UnixConn, *loan) // the worker that has the other end, to its end
}

// mappings is what concerns a client's further devices.
type mappings struct {
	mapping string // the mapper; "" for none
	explain int    // how many decisions are told to the program's user
	loans   map[vgpu.DeviceID]*loan
	ran     map[vgpu.DeviceID]tally.RanOn // kernels that ran on further devices
	home    vgpu.DeviceID                 // the device of the last lease
	homes   map[vgpu.DeviceID]vgpu.Usage

	uses       tally.Uses    // what it has used lately
	besideAt   time.Duration // when it was last told what others do on its devices; 0: never
	besideSome bool          // it was told that they do something

	shownMany bool          // its program was shown several devices
	kernels   uint64        // how many it had launched when wishes last looked
	launched  time.Duration // when it was last seen to launch some
}

// ranHome counts what ran on the device of the lease. It keeps that device in home, because a
// worker may report after it has given the lease back.
func (c *client) ranHome(used vgpu.Usage) {
	if c.homes == nil {
		c.homes = map[vgpu.DeviceID]vgpu.Usage{}
	}
	c.homes[c.home] = tally.Plus(c.homes[c.home], used)
}

// ranStatus is what ran on each device, home or further, in the order of devices.
func (c *client) ranStatus() (all []status.RanOn) {
	sums := maps.Clone(c.homes)
	for id, ran := range c.ran {
		if sums == nil {
			sums = map[vgpu.DeviceID]vgpu.Usage{}
		}
		sums[id] = tally.Plus(sums[id], ran.Usage)
	}
	for _, id := range slices.Sorted(maps.Keys(sums)) {
		if used := sums[id]; used.Kernels > 0 {
			all = append(all, status.RanOn{Device: int(id), Kernels: used.Kernels, BusyTime: used.GPUTime.Seconds()})
		}
	}
	return all
}

// wanted handles a worker's request for a further device, or for more memory on one.
func (s *loans) wanted(c *client, m control.WantFurther) {
	id := vgpu.DeviceID(m.Device)
	if l := c.loans[id]; l != nil {
		s.grow(l, m.Memory)
		return
	}
	share, may := s.canLend(c, id, m.Memory)
	if !may {
		c.worker.Post(control.DenyFurther{Device: m.Device})
		return
	}
	l := &loan{id: s.dispatcher.NewNumber(), client: c, device: id, share: share}
	if c.loans == nil {
		c.loans = map[vgpu.DeviceID]*loan{}
	}
	c.loans[id], s.all[l.id] = l, l
	s.dispatcher.Step(vgpu.Attach{Client: l.id, User: c.peer.User.Name, Weight: c.weight, Grant: vgpu.GrantID(c.under.Id()), Share: share, Further: true})
	s.dispatcher.Step(vgpu.Want{Client: l.id, Need: m.Memory, Pinned: id})
}

// canLend says whether a client may have a further device now: it has room, and no client waits. A
// client under a grant may have the grant's other devices, within what the job was granted of them,
// and share is the place of that device in the grant; others may have what is not granted.
func (s *loans) canLend(c *client, id vgpu.DeviceID, memory uint64) (share int, may bool) {
	v, ok := s.dispatcher.Device(id)
	if !ok || c.device == id || v.State != vgpu.DeviceUp {
		return 0, false
	}
	e := &s.stock.Load().Entries[id]
	if g := c.under.Granted; g != nil {
		if shown.CannotDo(e.Info, c.shown) != "" || s.grants.Ended(c.under) != "" || g.Limit == 0 {
			return 0, false
		}
		if share = shareAt(g, id); share >= 0 {
			return share, s.dispatcher.RoomInGrant(vgpu.GrantID(g.ID), share, memory)
		}
		share = c.under.Share
	}
	if v.Reserved || v.Granted > 0 || c.keepsOff(int(id), e) {
		return 0, false
	}
	cost := e.Info.ContextCost
	return share, s.dispatcher.Waiting() == 0 && v.Used+v.Promised < v.Slots && memory <= v.Free && cost <= v.Free-memory
}

// shareAt is the place in a grant of what it has of a device; negative if it has nothing.
func shareAt(g *grants.Granted, id vgpu.DeviceID) int {
	return slices.IndexFunc(g.Devices, func(s ask.GrantedDevice) bool { return s.Device == int(id) })
}

// perform carries out what the dispatcher decided about a loan.
func (s *loans) perform(l *loan, e vgpu.Effect) {
	w := l.client.worker
	if w == nil {
		return // the worker is gone, and its loans end with it
	}
	switch e.Kind {
	case vgpu.Grant:
		first := !l.granted
		l.granted, l.memory = true, e.Memory
		way, err := s.wayTo(l, first)
		if err != nil {
			s.log.Warn("a further device cannot be lent", "client", l.client.id, "device", int(l.device), "error", err)
			w.Post(control.DenyFurther{Device: int(l.device)})
			s.drop(l)
			return
		}
		w.Post(control.GrantFurther{Device: int(l.device), Memory: e.Memory, Loan: uint64(l.id)}, way...)
		l.client.besideAt = 0 // it must know what others do there before it sends its first kernel
		s.tellBeside(l.client)
	case vgpu.Revoke:
		w.Post(control.RevokeFurther{Device: int(l.device), Loan: uint64(l.id), Reason: string(e.Reason)})
	case vgpu.Watch:
		if e.On { // a loan leaves whenever another client needs its place
			s.dispatcher.Afterwards(vgpu.SyncPoint{Client: l.id})
		}
	case vgpu.Deny:
		w.Post(control.DenyFurther{Device: int(l.device)})
		if !l.granted {
			s.drop(l)
		}
	case vgpu.Gone:
		w.Post(control.Lost{Device: int(l.device), Reason: "the device is lost"})
		s.drop(l)
	}
}

// released takes a loan back.
func (s *loans) released(c *client, m control.ReleasedFurther) {
	if l := c.loans[vgpu.DeviceID(m.Device)]; l != nil && uint64(l.id) == m.Loan {
		s.drop(l)
	}
}

// drop ends a loan.
func (s *loans) drop(l *loan) { s.dispatcher.Afterwards(s.unlend(l)...) }

// unlend forgets a loan, and returns what the dispatcher must hear of that.
func (s *loans) unlend(l *loan) []vgpu.Event {
	delete(l.client.loans, l.device)
	delete(s.all, l.id)
	if l.way != nil && l.carrier == nil {
		_ = l.way.Close() // nobody will come
	}
	if l.carrier == nil {
		return []vgpu.Event{vgpu.Detach{Client: l.id}}
	}
	return nil
}

// dropAll ends all loans of a client whose worker is gone.
func (s *loans) dropAll(c *client) {
	var left []vgpu.Event
	for _, id := range slices.Sorted(maps.Keys(c.loans)) {
		left = append(left, s.unlend(c.loans[id])...)
	}
	s.dispatcher.Afterwards(left...)
}

// ran counts what ran on a further device.
func (s *loans) ran(c *client, m control.RanFurther) {
	id := vgpu.DeviceID(m.Device)
	if c.ran == nil {
		c.ran = map[vgpu.DeviceID]tally.RanOn{}
	}
	l := c.loans[id]
	c.ran[id] = c.ran[id].Plus(m)
	if l == nil || l.carrier == nil { // else they are also those of the client that carries it
		s.tally.Mapped[id] = s.tally.Mapped[id].Plus(m)
	}
	if l != nil && uint64(l.id) == m.Loan {
		l.ran = l.ran || m.Kernels > 0
	}
	if l != nil && uint64(l.id) == m.Loan && l.carrier == nil {
		s.dispatcher.Step(vgpu.Ran{Client: l.id, Kernels: m.Kernels, Busy: m.Busy})
	}
	c.used(id, s.loop.Now(), m.Kernels, m.Queued, m.Busy)
	s.tellBeside(c)
}

// furtherStatus is what is told of a client's further devices, in order.
func (c *client) furtherStatus() []status.Further {
	var all []status.Further
	devices := slices.Collect(maps.Keys(c.ran))
	for id := range c.loans {
		if _, ran := c.ran[id]; !ran {
			devices = append(devices, id)
		}
	}
	slices.Sort(devices)
	for _, id := range devices {
		ran, lent := c.ran[id], c.loans[id]
		all = append(all, status.Further{
			Device: int(id), Lent: lent != nil && lent.granted, Kernels: ran.Kernels, BusyTime: ran.GPUTime.Seconds(), Moved: ran.Moved,
		})
	}
	return all
}

// further is what ran on all further devices of a client.
func (c *client) further() (sum vgpu.Usage) {
	for _, ran := range c.ran {
		sum = tally.Plus(sum, ran.Usage)
	}
	return sum
}

// crediblyFurther refuses a worker that speaks of further devices it cannot have.
func (c *client) crediblyFurther(device int, kernels int, busy time.Duration) error {
	if c.mapping == "" || device >= settings.MaxDevices*settings.MaxDevices {
		return fmt.Errorf("it speaks of device %d beside its own, and its launches are not mapped", device)
	}
	if int64(kernels) > tally.MaxCount || int64(busy) > tally.MaxCount {
		return fmt.Errorf("it ran %d kernels in %v", kernels, busy)
	}
	return nil
}

// maxExplained is the most decisions that are told to a program's user.
const maxExplained = 1000

// Contexts of NVIDIA's driver that are in one process share a set of addresses (device.Info.OneArena), and
// a client has its memory at the same addresses on every device. So the further devices of a client
// whose launches are mapped cannot all be in its worker: the node lends each of them to itself. The
// worker gets a connection to this daemon with the loan. It is a guest there, as another node's worker
// would be (device/remote), and the guest's worker has the context. The two workers share memory; the
// daemon sees no data.
//
// To the dispatcher the loan is a client of its own until the guest comes, and the guest from then on.
// The guest never leaves the device with its memory: when the dispatcher wants it to, the client that
// it works for gives the loan back, as it does with any, and the guest ends. So its memory needs no
// room in the swap area.

// wayTo is the worker's end of the connection by which it opens a device that it was just lent, if that
// device needs one.
func (s *loans) wayTo(l *loan, first bool) ([]*os.File, error) {
	if !first || !s.stock.Load().Entries[l.device].Info.OneArena {
		return nil, nil
	}
	way, other, err := socket.Pair()
	if err != nil {
		return nil, fmt.Errorf("to another worker: %w", err)
	}
	l.way = way
	s.loop.Go(func() { s.serve(l.way, l) })
	return []*os.File{other}, nil
}

// handleLoan serves the connection by which a worker opens a device that it was lent. There is no limit
// of time: the worker opens it when the first kernel is to run there.
func (e *entrance) handleLoan(conn *net.UnixConn, l *loan) {
	defer conn.Close()
	who, in := l.client.peer, bufio.NewReader(conn)
	c, err := e.setUp(conn, in, who, nil, l)
	if err != nil {
		e.log.Debug("a further device was not opened", "client", l.client.id, "device", int(l.device), "error", err)
		e.turnAway(conn, who, refusal.New(refusal.SystemNotReady, "%v", err))
		return
	}
	e.accompany(c, conn, in.Buffered() > 0)
}

// closeWays closes the connections by which a client's worker has not opened further devices yet.
func (c *client) closeWays() {
	for _, l := range c.loans {
		if l.way != nil && l.carrier == nil {
			_ = l.way.Close()
		}
	}
}

// offer is what the worker that was lent a device is shown: that device.
func (s *loans) offer(l *loan) *shown.Offer {
	o, info := &shown.Offer{}, s.stock.Load().Entries[l.device].Info
	memory := info.Memory - info.ContextCost
	if g := l.client.under.Granted; g != nil {
		memory = min(memory, grants.ShareOf(g.Devices[l.share], info))
	}
	o.Numbers = []int{int(l.device)}
	o.Add([]device.Info{info}, memory, shown.Lent(s.cfg.Name, info, int(l.device), memory))
	return o
}

// carry makes a client the one by which a loan is used.
func (c *client) carry(l *loan) {
	c.guest, c.carries = guestOf(int(l.device)), l
	c.program = settings.Printable(fmt.Sprintf("device %d for client %d: %s", l.device, l.client.id, l.client.program))
	c.weight, c.latency = l.client.weight, l.client.latency
	if c.under.Granted != nil {
		c.under.Share = l.share
	}
}

// carriesFor says whether a client is there for another one's loan.
func (c *client) carriesFor(other *client) bool { return c.carries != nil && c.carries.client == other }

// carried gives a loan's place with the dispatcher to the client that carries it, which is about to be
// attached.
func (s *loans) carried(c *client) {
	if l := c.carries; l != nil {
		l.carrier = c
		s.dispatcher.Step(vgpu.Detach{Client: l.id})
	}
}

// needs is how much memory a client needs at a time that asks for some. One that carries a loan gets all
// that was lent at once. When the device is wanted back, it cannot get more, and the client that it works
// for waits until the kernels there have ended, which may need it.
func (c *client) needs(memory uint64) uint64 {
	if c.carries == nil {
		return memory
	}
	return max(memory, c.carries.memory)
}

// carriesInVain ends a client that carries a loan and would have to wait for the device, which another
// one got meanwhile, or which is drained: the worker that opens the device would wait with it, and
// could not give the loan back.
func (s *loans) carriesInVain(c *client) {
	if v, _ := s.dispatcher.Client(c.id); c.carries != nil && v.State != vgpu.Assigned {
		s.end(c, "the device is not free any more", false)
	}
}

// growsInVain tells a client that carries a loan, and may need more memory, that it gets none, because the
// device is wanted back. A Revoke would tell others that, but it goes to the client that it works for.
func (s *loans) growsInVain(c *client) {
	if v, _ := s.dispatcher.Client(c.id); c.carries != nil && v.Revoking {
		c.worker.Post(control.Deny{Lease: c.lease, Reason: string(vgpu.NoRoom)})
	}
}

// grow gives a client more memory of a device that it was lent, if there is some.
func (s *loans) grow(l *loan, memory uint64) {
	if l.carrier == nil {
		s.dispatcher.Step(vgpu.Grow{Client: l.id, Need: memory})
		return
	}
	v, _ := s.dispatcher.Device(l.device)
	more := memory - min(memory, l.memory)
	room := more <= v.Free
	if g := l.client.under.Granted; g != nil && shareAt(g, l.device) >= 0 {
		room = s.dispatcher.GrowsInGrant(vgpu.GrantID(g.ID), l.share, more)
	}
	if room {
		s.dispatcher.Step(vgpu.Grow{Client: l.carrier.id, Need: memory})
		has, _ := s.dispatcher.Client(l.carrier.id)
		room = has.State == vgpu.Assigned && has.Memory >= memory // else it is to leave
	}
	if !room {
		l.client.worker.Post(control.DenyFurther{Device: int(l.device)})
		return
	}
	l.memory = max(l.memory, memory)
	l.client.worker.Post(control.GrantFurther{Device: int(l.device), Memory: l.memory, Loan: uint64(l.id)})
}

// recalls passes on what the dispatcher wants of the client that carries a loan, if that concerns the
// loan: it goes back as soon as another client needs its place.
func (s *loans) recalls(l *loan, e vgpu.Effect) bool {
	w := l.client.worker
	known := w != nil && s.all[l.id] == l
	switch e.Kind {
	case vgpu.Watch:
		if e.On && known {
			w.Post(control.RevokeFurther{Device: int(l.device), Loan: uint64(l.id), Reason: "another client needs it"})
		}
		return true
	case vgpu.Revoke:
		s.growsInVain(l.carrier)
		if known {
			w.Post(control.RevokeFurther{Device: int(l.device), Loan: uint64(l.id), Reason: string(e.Reason)})
		}
		return true
	case vgpu.Gone:
		if known {
			w.Post(control.Lost{Device: int(l.device), Reason: "the device is lost"})
			s.drop(l)
		}
	}
	return false
}
