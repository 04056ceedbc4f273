package lending

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	"muster/device"
	"muster/node/inventory"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire/borrow"
	"muster/wire/control"
)

// Said is what the node that lends a device said of how busy it is, and when.
type Said struct {
	Loads []borrow.Load
	At    time.Duration
}

// Lenders are greeted, whether their devices are borrowed or the configuration names them. A lender that
// is stopped, or hangs, ends no connection: the programs on its device would wait for ever. So the node
// greets the lenders whose devices are used, as often as it pings workers. If a lender stays silent for
// as many intervals as a worker may, its device is lost and the programs are rebuilt elsewhere. Only
// silence counts: a lender that refuses a greeting is alive, and broken connections are noticed by the
// workers. All of it is the loop's.
type Lenders struct {
	do   func(f func()) bool // has the loop run f later
	open func(control.DeviceConfig) (device.Device, error)
	now  func() time.Duration
	most int // intervals that a lender may be silent

	greetings map[vgpu.DeviceID]*greeting
	said      map[vgpu.DeviceID]Said // what lenders of devices of the configuration said when they were greeted
}

// greeting is a greeting that a lender has not answered yet.
type greeting struct {
	change uint64 // of the inventory entry that it is for
	asked  bool   // it is under way
	missed int    // fair intervals since it began
}

// NewLenders greets devices of others by opening them.
func NewLenders(do func(func()) bool, open func(control.DeviceConfig) (device.Device, error), now func() time.Duration, most int) *Lenders {
	return &Lenders{do: do, open: open, now: now, most: most, greetings: map[vgpu.DeviceID]*greeting{}, said: map[vgpu.DeviceID]Said{}}
}

// Check greets the lenders of devices that are used, and calls silent for those whose lender has been
// silent for too long. It is called when an interval has just ended; fair says whether that interval
// counts: the answers have had a fair chance to come.
func (l *Lenders) Check(fair bool, stock func() *inventory.Inventory, used func(vgpu.DeviceID) bool, silent func(vgpu.DeviceID)) {
	maps.DeleteFunc(l.greetings, func(id vgpu.DeviceID, g *greeting) bool {
		e := &stock().Entries[id]
		return !e.Here || e.Change != g.change
	})
	for i := range stock().Entries {
		id, e := vgpu.DeviceID(i), stock().Entries[i]
		if e.Kind != settings.KindRemote || !e.Here {
			continue
		}
		g := l.greetings[id]
		if g == nil {
			if !used(id) {
				continue
			}
			g = &greeting{change: e.Change}
			l.greetings[id] = g
		} else if fair {
			g.missed++
		}
		if g.missed >= l.most {
			delete(l.greetings, id)
			silent(id)
			continue
		}
		l.greet(id, g, e, stock)
	}
}

// greet asks a lender for a sign of life.
func (l *Lenders) greet(id vgpu.DeviceID, g *greeting, e inventory.Device, stock func() *inventory.Inventory) {
	if g.asked {
		return
	}
	g.asked = true
	go func() { // a shutdown need not wait for it
		opened, err := l.open(e.DeviceConfig)
		l.do(func() {
			if now := &stock().Entries[id]; err == nil && now.Here && now.Change == e.Change {
				l.Heard(id, now.Index, opened)
			}
			if g.asked = false; !isSilence(err) && l.greetings[id] == g {
				delete(l.greetings, id)
			}
		})
	}()
}

// isSilence says whether an error is that nothing was heard for too long.
func isSilence(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// busyLender is a device of another node that knows what its lender said of others' work there: how
// many programs had some, in thousandths, and how long their kernels take.
type busyLender interface {
	Load() (calls int, each time.Duration)
}

// Heard notes what the lender of a device has said, which it calls by index, when it was greeted.
func (l *Lenders) Heard(id vgpu.DeviceID, index int, opened device.Device) {
	if lender, ok := opened.(busyLender); ok {
		calls, each := lender.Load()
		l.said[id] = Said{[]borrow.Load{{Device: index, Calls: calls, Each: each}}, l.now()}
	}
}

// Said is what the lender of a device said when it was greeted.
func (l *Lenders) Said(id vgpu.DeviceID) (Said, bool) {
	said, ok := l.said[id]
	return said, ok
}

// Silence says why a device is lost whose lender is silent.
func Silence(patience time.Duration) string {
	return fmt.Sprintf("its node has not answered for %v: it has stopped, or hangs", patience)
}
