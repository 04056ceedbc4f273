package clientcore

import (
	"time"

	"muster/vmm"
	"muster/wire/control"
)

// Lease is what the daemon has granted, and what it was asked for.
type Lease struct {
	Held   bool
	Device int
	Memory uint64 // bytes that the client may use on the device
	// Coming is how many bytes it will get without asking, when others have left the device; 0: no
	// more than it has.
	Coming uint64 `json:",omitempty"`
	Number uint64 // of the last lease

	Wanting bool   // a Want is not answered yet
	Stale   bool   // Want was sent again because a device was lost, so the next Deny may answer the first one
	Growing bool   // a Grow is not answered yet
	Denied  string // why the last request of the current message was refused; "" if it was not

	// A revocation waits until the host functions have returned: one of them may wait for another
	// thread of the program, which waits for this client. While the lease is to grow, it is also the
	// answer to Grow.
	Wanted     bool
	WantedFor  string
	WantedKeep uint64 `json:",omitempty"` // as Release.Stay
	WantedStep uint64 `json:",omitempty"` // as Release.Step

	// Began says that a kernel was launched under the lease, and Moved how long it took to prepare
	// the client's memory and context for it.
	Began bool          `json:",omitempty"`
	Moved time.Duration `json:",omitempty"`
}

// begun tells the daemon, once, that the client's turn on the device begins: everything it needs is there,
// and the caller is about to launch the first kernel.
func (st *standing) begun() {
	if l := &st.Lease; !l.Began {
		l.Began = true
		st.say(control.Began{Lease: l.Number, Took: l.Moved})
	}
}

// grow asks for more memory on the device.
func (st *standing) grow(bytes uint64) {
	st.Lease.Denied, st.Lease.Growing = "", true
	st.say(control.Grow{Memory: bytes})
}

// prepared notes how long it took to open a context, or to move memory there.
func (st *standing) prepared(took time.Duration) {
	if !st.Lease.Began {
		st.Lease.Moved += took
	}
}

// denied handles a Deny, if it answers what the client has asked, or what was to come. One that
// crossed the release of its lease does not: the daemon will answer the Want that followed.
func (l *Lease) denied(m control.Deny) {
	if answers := l.Wanting && m.Lease == 0 || l.Held && m.Lease == l.Number && (l.Growing || l.Coming > 0); !answers {
		return
	}
	stale := l.Stale
	l.forgetAsked()
	if stale {
		return
	}
	if l.Denied = m.Reason; m.Reason == "" {
		l.Denied = "refused"
	}
}

// granted handles a Grant, which may be of more memory.
func (l *Lease) granted(g control.Grant) {
	had := *l
	*l = Lease{Held: true, Device: g.Device, Memory: g.Memory, Coming: g.Coming, Number: g.Lease}
	if l.WantedFor = had.WantedFor; had.Held {
		l.Wanted, l.Began, l.Moved = had.Wanted, had.Began, had.Moved
	}
}

// revoked notes a revocation that must wait.
func (l *Lease) revoked(m control.Revoke) {
	l.Wanted, l.WantedFor, l.WantedKeep, l.WantedStep = true, m.Reason, m.Keep, m.Step
	l.Growing = false
}

// forgetAsked notes that nothing that was asked is answered any more.
func (l *Lease) forgetAsked() { l.Wanting, l.Growing, l.Stale, l.Coming = false, false, false, 0 }

// end leaves of the lease only its number.
func (l *Lease) end() { *l = Lease{Number: l.Number} }

// Context is a context that the executor has open.
type Context struct {
	Place vmm.Place
	Cost  uint64 // bytes that it takes by itself
	// Number counts the contexts of a client: another context may accept a module that this one has
	// refused to load.
	Number uint64
	// Textures are the client's textures that this context has.
	Textures []TextureID
	// Has says which modules a further context has, by serial number. The context at home has those
	// that are Loaded.
	Has map[uint64]bool `json:",omitempty"`
}

// standing is where the client stands: what it was granted, and the contexts that it has open.
type standing struct {
	*step
	standingState
	housed bool // a context has been open in this process
}

type standingState struct {
	Lease    Lease
	Contexts []*Context        // open now: first the one at home, then further ones
	Made     uint64            // number of contexts so far
	Limits   map[uint32]uint64 // set by the program, by number
}

func (st *standing) save(to *State)   { to.standingState = st.standingState }
func (st *standing) load(from *State) { st.standingState = from.standingState }

// Detached says whether the client has nothing on any device: then what Save writes, with the host
// copies, is all of it.
func (st *standing) Detached() bool { return len(st.Contexts) == 0 }

// context returns the open context of a place; nil if there is none.
func (st *standing) context(p vmm.Place) *Context {
	for _, x := range st.Contexts {
		if x.Place == p {
			return x
		}
	}
	return nil
}

// HomeDevice is that of the lease; -1 if there is none.
func (st *standing) HomeDevice() int {
	if !st.Lease.Held {
		return -1
	}
	return st.Lease.Device
}

// place is the place of the lease's device.
func (st *standing) place() vmm.Place { return st.config.Devices[st.Lease.Device].Place }

// here returns the open context on the lease's device; nil if there is no lease or no context.
func (st *standing) here() *Context {
	if !st.Lease.Held || len(st.Contexts) == 0 || st.Contexts[0].Place != st.place() {
		return nil
	}
	return st.Contexts[0]
}

// Leased says which lease the daemon granted last. What the client says from now on is about that
// lease or a later one.
func (st *standing) Leased(number uint64) { st.Lease.Number = max(st.Lease.Number, number) }

// anyContext returns the context that modules are loaded in; nil if none is open.
func (st *standing) anyContext() *Context {
	if len(st.Contexts) == 0 {
		return nil
	}
	return st.Contexts[0]
}

// isFurther says whether a context is not the one at home.
func (st *standing) isFurther(p vmm.Place) bool {
	return len(st.Contexts) > 1 && st.Contexts[0].Place != p
}

// drainAll waits until all work has ended, in all contexts.
func (st *standing) drainAll() {
	for _, x := range st.Contexts {
		st.next(Drain).Place = x.Place
	}
}
