package head

import (
	"muster/head/notices"
	"muster/wire/agent"
	"muster/wire/api"
)

// outbox is what the core wants done, until the daemon takes it. Jobs that have changed are only noted:
// their records and documents are made when it is emptied, once each.
type outbox struct {
	effects Effects
	changes uint64   // numbers the changes sent to subscribers
	dirty   []*job   // their records are to be written
	tell    []*job   // their documents are to be published
	endings []*array // their ends have changed
	vacated []uint64 // numbers that rests had
	load    int      // how much tell is to write
}

// author makes what an outbox leaves open until it is emptied.
type author interface {
	record(*job) []Record
	document(*job) api.Job
	endsNow(*array) *Ends
	isThere(number uint64) bool // there is a job with the number
}

// take empties the outbox.
func (o *outbox) take(by author) Effects {
	for _, id := range o.vacated {
		if !by.isThere(id) {
			o.write(Record{Bucket: Jobs, Key: Number(id)})
		}
	}
	o.vacated = o.vacated[:0]
	for _, a := range o.endings {
		a.dirty = false
		o.write(Record{Arrays, Number(a.id), encoded(by.endsNow(a))})
	}
	o.endings = o.endings[:0]
	for _, j := range o.dirty {
		j.dirty = false
		o.write(by.record(j)...)
	}
	o.dirty = o.dirty[:0]
	for _, j := range o.tell {
		j.told = false
		doc := by.document(j)
		o.publish(api.Change{Job: &doc})
	}
	o.tell, o.load = o.tell[:0], 0
	e := o.effects
	o.effects = Effects{}
	return e
}

// full is how much the next take has to write and send.
func (o *outbox) full() int { return o.load + len(o.effects.Sends) }

func (o *outbox) write(r ...Record) { o.effects.Records = append(o.effects.Records, r...) }

func (o *outbox) publish(change api.Change) {
	o.changes++
	change.At = o.changes
	o.effects.Changes = append(o.effects.Changes, change)
}

// touch notes a job that has changed: its record is written, and subscribers hear of it.
func (o *outbox) touch(j *job) {
	if !j.dirty {
		j.dirty = true
		o.dirty = append(o.dirty, j)
	}
	o.show(j)
}

// show notes a job whose document has changed, but not its record.
func (o *outbox) show(j *job) {
	if !j.told {
		j.told = true
		o.load += 1 + len(j.options)/perOptions
		o.tell = append(o.tell, j)
	}
}

// ended notes an array of which tasks have ended.
func (o *outbox) ended(a *array) {
	if !a.dirty {
		a.dirty = true
		o.endings = append(o.endings, a)
	}
}

// vacate notes that no rest has a number any more.
func (o *outbox) vacate(number uint64) { o.vacated = append(o.vacated, number) }

// answer answers a request: with a result, or else why it is refused.
func (o *outbox) answer(r Request, result any, err *Refusal) {
	if err != nil {
		result = nil
	}
	o.effects.Answers = append(o.effects.Answers, Answer{r, result, err})
}

func (o *outbox) send(s Session, m agent.ToAgent) {
	o.effects.Sends = append(o.effects.Sends, Send{Session: s, Message: m})
}

func (o *outbox) notice(changes []notices.Change) {
	o.effects.Notices = append(o.effects.Notices, changes...)
}

func (o *outbox) hangUp(s Session) { o.effects.HangUps = append(o.effects.HangUps, s) }

// budget is how much may be done until the next Take, so that nobody waits long for the next event.
type budget struct {
	out             *outbox
	mayLoad, looked int // how much may change, and how many jobs this event has looked at
	singly          int // tasks of rests that this event ended one by one
}

// allow says how much may be done from now on.
func (b *budget) allow(load int) {
	b.singly, b.looked = 0, 0
	b.mayLoad = load
}

// spent says whether as much has been done as is allowed.
func (b *budget) spent() bool { return b.out.full() >= b.mayLoad || b.looked >= maxLooked }

// post queues a message to a node's agent. If the agent is away the message is dropped: compare
// makes it again when the agent greets.
func (o *outbox) post(n *node, m agent.ToAgent) {
	if n.session != 0 {
		o.send(n.session, m)
	}
}
