package worker

import (
	"errors"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/wire"
)

// lateLaunch is a launch that a device has taken and may not have made yet (device.Launcher). The
// driver keeps whoever launches for longer than it takes to read a message: so the loop reads on
// meanwhile. To the program nothing changes. It hears of a launch that was refused at its next call
// that has an answer, and before the loop handles such a one it asks which were.
type lateLaunch struct {
	gpu    *gpu
	by     device.Launcher
	number uint64
	entry  journal.Entry
	header wire.Header
}

// mostLate is how many launches may be late: what is known of them takes room.
const mostLate = 1024

// give gives the device a kernel.
func (w *worker) give(g *gpu, f device.Function, on device.Stream, o *clientcore.Op) error {
	if w.hosts.outstanding() > 0 {
		how := o.How
		return w.block(func() error { return on.Launch(f, how) })
	}
	later, ok := on.(device.Launcher)
	if !ok || w.replay != nil || w.unproven || w.timeline != nil || o.Ticket != 0 {
		return on.Launch(f, o.How)
	}
	number, late, err := later.LaunchLater(f, o.How, w.consumer.Follows(wire.OpLaunch))
	if late {
		w.late = append(w.late, lateLaunch{g, later, number, w.entry, w.header})
	}
	return err
}

// settleLaunches waits until devices have made the launches that they took, and handles those that
// they refused.
func (w *worker) settleLaunches() error {
	for len(w.late) > 0 {
		g := w.late[0].gpu
		var rest, of []lateLaunch
		if len(w.gpus) > 1 {
			for _, l := range w.late {
				if l.gpu == g {
					of = append(of, l)
				} else {
					rest = append(rest, l)
				}
			}
		} else {
			of = w.late
		}
		var refused []device.Refusal
		if w.gpus[g.place] == g { // else it has ended, with all that was under way
			refused = of[0].by.Refused()
		}
		if len(refused) == 0 && rest == nil {
			w.late = w.late[:0]
			return nil
		}
		w.late = rest
		if err := w.refusedLate(of, refused); err != nil {
			return err
		}
	}
	return nil
}

// refusedLate handles the launches of a list that were refused.
func (w *worker) refusedLate(list []lateLaunch, refused []device.Refusal) error {
	entry, header, hasData := w.entry, w.header, w.hasData
	defer func() { w.entry, w.header, w.hasData = entry, header, hasData }()
	for _, r := range refused {
		var fault *device.Fault
		if errors.As(r.Err, &fault) || errors.Is(r.Err, device.ErrClosed) {
			return w.found(w.sticky.current(), r.Err)
		}
		for _, l := range list {
			if l.number != r.Number {
				continue
			}
			w.entry, w.header, w.hasData = l.entry, l.header, false
			if err := w.perform(w.core.RefusedLate(w.now(), l.header, r.Err)); err != nil {
				return err
			}
		}
	}
	return nil
}
