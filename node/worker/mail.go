package worker

import (
	"os"
	"time"

	"muster/internal/mailbox"
	"muster/node/clientcore"
	"muster/node/worker/line"
	"muster/wire/control"
)

// mail is what the daemon and the loop tell each other. A goroutine of its own receives messages (receive);
// the rest is the loop's, but for say, put and overtime.
type mail struct {
	*session
	line    *line.Line                     // to the daemon
	inbox   *mailbox.Box[control.ToWorker] // messages that the loop has not handled; receive, which puts them there, must not block: it also answers pings
	devices *devices
}

// put tells the loop something, as if the daemon had said it.
func (p *mail) put(m control.ToWorker) {
	p.inbox.Put(m)
	p.consumer.Wake()
}

// waits says whether a message waits for the loop.
func (p *mail) waits() bool { return p.inbox.Len() > 0 }

// replaces says whether a message of the daemon says all that the one before it says, and takes its
// place in the inbox. The daemon sends a Watch each time another client begins or stops waiting for the
// device, which may be often, and without this the inbox would grow while the loop is busy. So it is with
// Grants of the same lease: the last one has all that the others had, and more comes to the device at
// once. All other messages are answers to the worker, or rare.
func replaces(m, before control.ToWorker) bool {
	switch m := m.(type) {
	case control.Watch:
		_, watch := before.(control.Watch)
		return watch
	case control.Grant:
		grant, ok := before.(control.Grant)
		return ok && grant.Lease == m.Lease
	}
	return false
}

// say sends a message to the daemon.
func (p *mail) say(m control.ToDaemon) {
	p.tracing.Said(m)
	if _, ok := m.(control.Failed); ok {
		p.told.Untold.Failed(func() { p.line.Say(m) })
		return
	}
	p.line.Say(p.completed(m))
}

// sayAll performs operations that are all messages to the daemon.
func (p *mail) sayAll(ops []clientcore.Op) {
	for i := range ops {
		if ops[i].Kind == clientcore.Say {
			p.say(ops[i].Message)
		}
	}
}

// completed adds to a message what the core does not know.
func (p *mail) completed(m control.ToDaemon) control.ToDaemon {
	if standing, ok := m.(control.Standing); ok {
		standing.Devices = p.devices.configs
		return standing
	}
	if report, ok := m.(control.Report); ok && p.pace != nil {
		report.Stats.Held = p.pace.Held()
		return report
	}
	return m
}

// receive takes messages from the daemon and puts them into the inbox. When the daemon dies it
// waits for the next one (Outlive); if none comes, the client cannot go on, and the process ends.
// It runs beside the loop because it must answer pings while the loop waits for a kernel.
func (p *mail) receive() {
	for {
		m, files, err := p.line.Receive()
		switch said := m.(type) {
		case control.AddDevice: // its lock comes with it, and no other descriptor
			m = comingDevice{said, files[0]}
		case control.GrantFurther:
			if len(files) > 0 {
				m = comingLoan{said, files[0]}
			}
		case control.Checkpoint, control.Restore:
			m = order{said, files[0]}
		case control.Hold:
			p.attach(said, files[0])
			continue
		case control.End:
			p.line.Dismiss()
			continue
		case control.Neighbour: // noted here, not queued: many may come while the loop is busy
			p.tracing.neighbours.Note(said)
			continue
		}
		if err != nil && p.line.Dismissed() {
			p.told.Untold.AtEnd(func(why string) { p.line.Say(control.Ended{Reason: why, Fault: true}) })
		}
		if err != nil && (p.ctx.Err() != nil || !p.line.Cut()) {
			return // the worker closed the connection itself, and has said why
		}
		if err != nil {
			p.inbox.Put(abandoned{})
			next, why := p.line.Outlive()
			if next != nil {
				p.put(nextDaemon{end: next})
				continue
			}
			p.die(why)
			return
		}
		if ping, ok := m.(control.Ping); ok { // answered here, so that a busy loop does not look dead
			p.line.Answer(ping)
			continue
		}
		p.put(m)
	}
}

// nextDaemon tells the loop that a daemon has adopted the worker. It goes through the inbox, behind
// everything that the last daemon sent.
type nextDaemon struct {
	control.Hold
	end *control.WorkerEnd
}

// attach takes the program's connection.
func (p *mail) attach(m control.Hold, connection *os.File) {
	p.line.Attach(m, connection, p.serve.Resume && p.shared.Used())
}

// askForAnother tells the daemon that the client needs another worker, and waits to be killed. It
// must not exit before the daemon knows: until then only this process has the client's memory
// files. If the daemon dies meanwhile, the next one gets the standing first, as it expects, and
// then the same request.
func (p *mail) askForAnother(m control.Rebuild) {
	late := time.NewTimer(p.serve.OrphanGrace + killTime)
	defer late.Stop()
	said := false
	for {
		switch open := p.line.IsOpen(); {
		case open && !said:
			p.say(m)
			said = true
		case !open:
			said = false
		}
		news, heard := p.inbox.Take()
		if next, ok := news.(nextDaemon); ok {
			p.line.Begin(next.end)
			s := p.core.Standing()
			p.say(control.Standing{Lease: s.Lease, Failed: true, Committed: s.Committed}) // what the client had on a device is lost
			said = false
		}
		if heard {
			continue
		}
		select {
		case <-p.inbox.News():
		case <-late.C:
			return
		case <-p.ctx.Done(): // no daemon has come
			return
		}
	}
}

// killTime is the longest that a daemon takes to kill a worker that has asked for another.
const killTime = 10 * time.Second

// overtime ends the client: its kernel holds a device for longer than it may. The loop may be waiting for
// that very kernel, so this happens beside it.
func (p *mail) overtime(kernel string) {
	fault := p.kernelLimit().Fault(kernel)
	p.log.Warn("a kernel ran for longer than it may, and cannot be stopped: its worker ends", "reason", fault.Error())
	p.say(control.Ended{Reason: fault.Error(), Fault: true}) // first: a program that ends at once takes its worker along
	p.shared.SetStatus(clientcore.ResultOf(fault))
	p.die(fault.Error())
}

// die ends the process, beside the loop.
func (p *mail) die(why string) {
	p.shared.Close(why)
	p.stop()
	p.consumer.Stop()
	p.exit()
}
