package worker

import (
	"errors"

	"muster/device"
	"muster/node/clientcore"
	"muster/wire"
)

// lateLaunch is a launch that a device has accepted but may not have passed to the driver yet
// (device.StreamCan.LaunchLater). A launch call keeps the driver's caller for longer than the loop needs to read
// a message, so the loop reads on meanwhile. The program cannot tell the difference: it learns of a
// refused launch at its next call that has an answer, and before the loop handles such a call it
// asks the device which launches were refused.
type lateLaunch struct {
	gpu     *gpu
	refused func() []device.Refusal
	number  uint64
	message message
}

// mostLate bounds the late launches: the loop keeps an entry for each.
const mostLate = 1024

// give launches a kernel, late if the device can and nothing forbids it.
//
// While a host function is outstanding the launch may block until that function returns, so block
// reads ahead. Otherwise a launch may be late, but not during a replay, not while a rebuilt client
// is unproven, and not if a timeline or a ticket needs the time of this very launch. The last
// argument of LaunchLater says whether another launch follows in the ring; a single launch is made
// at once, since handing it to the other thread takes longer.
func (l *launches) give(m *message, g *gpu, f device.Function, on device.Stream, o *clientcore.Op) error {
	if l.outstanding() > 0 {
		how := o.How
		return l.answers.Block(func() error { return on.Launch(f, how) })
	}
	can := on.Can()
	if can.LaunchLater == nil || l.prompt() || l.timeline != nil || o.Ticket != 0 {
		return on.Launch(f, o.How)
	}
	number, late, err := can.LaunchLater(f, o.How, l.consumer.Follows(wire.OpLaunch))
	if late {
		l.late = append(l.late, lateLaunch{g, can.Refused, number, *m})
	}
	return err
}

// settle waits until the devices have made all launches that they accepted, and handles the
// refused ones. It goes context by context, since Refused answers for one context.
func (l *launches) settle() error {
	for len(l.late) > 0 {
		g := l.late[0].gpu
		var rest, of []lateLaunch
		if len(l.contexts.open) > 1 {
			for _, one := range l.late {
				if one.gpu == g {
					of = append(of, one)
				} else {
					rest = append(rest, one)
				}
			}
		} else {
			of = l.late
		}
		var refused []device.Refusal
		if l.contexts.has(g) { // otherwise the context is closed, and its launches ended with it
			refused = of[0].refused()
		}
		if len(refused) == 0 && rest == nil {
			l.late = l.late[:0]
			return nil
		}
		l.late = rest
		if err := l.refusedLate(of, refused); err != nil {
			return err
		}
	}
	return nil
}

// refusedLate reports the refused launches of a list to the core.
func (l *launches) refusedLate(list []lateLaunch, refused []device.Refusal) error {
	for _, r := range refused {
		var fault *device.Fault
		// A fault is not the refusal of one launch: it concerns the whole context.
		if errors.As(r.Err, &fault) || errors.Is(r.Err, device.ErrClosed) {
			return l.found(l.answers.Told.Sticky.Current(), r.Err)
		}
		for i := range list {
			one := &list[i]
			if one.number != r.Number {
				continue
			}
			ops, err := l.core().RefusedLate(l.answers.Now(), one.message.Header, r.Err)
			if err := l.perform(&one.message, ops, err); err != nil {
				return err
			}
		}
	}
	return nil
}
