package cores

import (
	"fmt"
	"slices"
	"time"

	"muster/model"
	"muster/node/vgpu"
)

// job is a grant and its programs.
type job struct {
	id       vgpu.GrantID
	parts    []*part
	weight   int
	priority int
	limit    int
	left     int  // programs that have not ended
	ended    bool // its grant was withdrawn
}

// part is a share of a job.
type part struct {
	vgpu.Share
	job      *job
	index    int
	programs []*program
	since    time.Duration // when its grant was admitted, or went on
	cleared  bool          // those have left who had to for that, or were about to
}

// admit draws a job and the programs that it will begin. Grants leave a quarter of each device to others.
func (n *node) admit() {
	j := &job{id: vgpu.GrantID(fmt.Sprint("job", len(n.jobs))), weight: 1 + n.r.IntN(1000), priority: n.r.IntN(2), limit: -1}
	e := vgpu.Admit{Grant: j.id, Limit: -1}
	for i, d := range n.cfg.Devices {
		if n.r.IntN(2) == 0 && (i < len(n.cfg.Devices)-1 || len(j.parts) > 0) {
			continue
		}
		s := vgpu.Share{Device: vgpu.DeviceID(i), Reach: model.Reach(n.r.IntN(3))}
		// Half of what there is for jobs, or some of it.
		least := 4*d.ContextCost + 4*ownNeed
		s.Memory = []uint64{d.Memory * 3 / 8, least + n.r.Uint64N(d.Memory*3/8-least), least + n.r.Uint64N(d.Memory/8)}[n.r.IntN(3)]
		s.Beyond = []uint64{0, n.r.Uint64N(d.Memory), model.AllBeyond}[n.r.IntN(3)]
		p := &part{Share: s, job: j, index: len(j.parts), since: n.now}
		for range 1 + n.r.IntN(min(3, d.Slots)) {
			p.programs = append(p.programs, &program{part: p, user: string(j.id), phases: 1 + n.r.IntN(20), kernel: time.Millisecond + n.upTo(200*time.Millisecond), modest: n.r.IntN(3) == 0})
		}
		j.parts, e.Shares = append(j.parts, p), append(e.Shares, s)
		j.left += len(p.programs)
	}
	if !n.fits(j) || n.core.Refuses(e) != nil {
		return
	}
	n.jobs = append(n.jobs, j)
	n.tell(e)
	n.unserved += j.left
	for _, s := range j.parts {
		for _, p := range s.programs {
			n.after([]time.Duration{n.upTo(time.Millisecond), n.upTo(5 * time.Second)}[n.r.IntN(2)], func() { n.begin(p) })
		}
	}
}

// fits says whether a job leaves a quarter of each device beside those that are active.
func (n *node) fits(j *job) bool {
	for _, s := range j.parts {
		granted := s.Memory
		for _, o := range n.jobs {
			for _, t := range o.parts {
				if o != j && !o.ended && o.limit != 0 && t.Device == s.Device {
					granted += t.Memory
				}
			}
		}
		if granted > n.cfg.Devices[s.Device].Memory*3/4 {
			return false
		}
	}
	return true
}

func (n *node) withdraw(j *job) {
	j.ended = true
	n.tell(vgpu.Withdraw{Grant: j.id})
	for _, s := range j.parts {
		for _, p := range s.alive() {
			n.after(n.upTo(10*time.Millisecond), func() {
				if !p.gone {
					n.end(p)
				}
			})
		}
	}
}

// restrict sets a job's limit. One that was suspended goes on when there is room for it.
func (n *node) restrict(j *job, limit int) {
	e := vgpu.Restrict{Grant: j.id, Limit: limit}
	if j.ended {
		return
	}
	if j.limit == 0 && (!n.fits(j) || n.core.Refuses(e) != nil) {
		n.after(time.Second, func() { n.restrict(j, limit) })
		return
	}
	for _, s := range j.parts {
		if j.limit == 0 {
			s.since, s.cleared = n.now, false
		}
	}
	j.limit = limit
	n.tell(e)
}

// befall has devices fail, and jobs come and end.
func (n *node) befall() {
	for range n.r.IntN(20) {
		n.after(n.upTo(8*time.Second), n.fault)
	}
}

func (n *node) fault() {
	back, i := n.upTo(3*time.Second), n.r.IntN(len(n.cfg.Devices))
	id := vgpu.DeviceID(i)
	var j *job
	if len(n.jobs) > 0 {
		j = n.jobs[n.r.IntN(len(n.jobs))]
	}
	switch what := n.r.IntN(8); {
	case what == 0 && !n.down[i]:
		n.down[i] = true
		n.tell(vgpu.Lost{Device: id})
		n.after(back, func() {
			n.down[i] = false
			n.tell(vgpu.Returned{Device: id, Is: n.cfg.Devices[i]})
		})
	case what == 1 && !n.down[i]:
		n.down[i] = true
		n.tell(vgpu.Drain{Device: id})
		n.after(back, func() {
			n.down[i] = false
			n.tell(vgpu.Resume{Device: id})
		})
	case what < 5:
		n.admit()
	case j == nil || j.ended || j.limit >= 0:
	case what == 5:
		n.withdraw(j)
	default:
		n.restrict(j, n.r.IntN(len(j.parts)))
		n.after(back, func() { n.restrict(j, -1) })
	}
}

// drawNeed draws what a job's program asks for: its part of the share, or any of it, or more.
func (n *node) drawNeed(p *program) uint64 {
	s, d := p.part, n.cfg.Devices[p.part.Device]
	most := min(s.Memory+s.Beyond, d.Memory) - d.ContextCost
	switch {
	case p.modest:
		most = s.Memory/uint64(len(s.programs)) - d.ContextCost
	case n.r.IntN(2) == 0:
		most = s.Memory - d.ContextCost
	}
	return 1 + n.r.Uint64N(most)
}

func (n *node) grow(p *program) {
	most := uint64(1 << 20)
	if s := p.part; s != nil {
		most = s.Memory / 4
		if p.need+most > min(s.Memory+s.Beyond, n.cfg.Devices[p.device].Memory, n.cfg.Devices[s.Device].Memory)-4*ownNeed {
			n.then(p, 0, func() { n.run(p) })
			return
		}
	}
	p.growing = true
	more := p.need + n.r.Uint64N(most)
	n.tell(vgpu.Grow{Client: p.id, Need: more})
	others := func(o *program) bool { return o != p && (o.growing || o.waits || o.told != nil) } // of its own job
	if p.growing && p.atHome() && n.mayRely(p.part) && !slices.ContainsFunc(p.part.alive(), others) && n.asked(p.part)+more-p.need <= p.part.Memory {
		n.fail("%s asks for %d bytes instead of %d of the %d that are guaranteed, and waits for others", p.user, more, p.need, p.part.Memory)
	}
}

// --- what must hold ------------------------------------------------------------

// takes is how many bytes a program has on its device.
func (n *node) takes(p *program) uint64 {
	if p.bound {
		return p.need + n.cfg.Devices[p.device].ContextCost
	}
	return p.kept
}

func (p *program) atHome() bool {
	return p.part != nil && p.device == p.part.Device && (p.bound || p.kept > 0)
}

// alive are the programs of a share that have begun and not ended.
func (s *part) alive() (all []*program) {
	for _, p := range s.programs {
		if p.id > 0 && !p.gone {
			all = append(all, p)
		}
	}
	return all
}

// asked is how many bytes the programs of a share would have at home at most, had they all that they ask for, and
// what they keep.
func (n *node) asked(s *part) (bytes uint64) {
	for _, p := range s.alive() {
		if p.bound || p.waits {
			bytes += p.need + n.cfg.Devices[s.Device].ContextCost
		}
		bytes += p.kept
	}
	return bytes
}

// check looks at what programs have, and at what they wait for.
func (n *node) check() {
	for i, d := range n.cfg.Devices {
		taken := uint64(0)
		for _, p := range n.programs {
			if p.device == vgpu.DeviceID(i) {
				taken += n.takes(p)
			}
		}
		v, _ := n.core.Device(vgpu.DeviceID(i))
		if taken > d.Memory || v.State != vgpu.DeviceLost && taken != v.Taken {
			n.fail("device %d has %d of %d bytes taken, and shows %d", i, taken, d.Memory, v.Taken)
		}
	}
	for _, j := range n.jobs {
		for _, s := range j.parts {
			n.checkPart(s)
		}
	}
}

// checkPart checks that none of a share's programs waits as long as all of them ask for no more than it, and that they
// have no more than they may.
func (n *node) checkPart(s *part) {
	asked, has := n.asked(s), uint64(0)
	for _, p := range s.alive() {
		if p.atHome() {
			has += n.takes(p)
		}
	}
	if has > s.Memory && has-s.Memory > s.Beyond {
		n.fail("%s has %d bytes of device %d, and may have %d and %d", s.job.id, has, s.Device, s.Memory, s.Beyond)
	}
	leaves := func(p *program) bool { return p.atHome() && p.told != nil } // perhaps for its own job
	if asked > s.Memory || !n.mayRely(s) || slices.ContainsFunc(s.alive(), leaves) {
		return
	}
	for _, p := range s.alive() {
		if p.waits && p.told == nil { // one that was told to let go of what it keeps elsewhere has to answer first
			v, _ := n.core.Client(p.id)
			if v.Target != vgpu.AnyDevice && !slices.ContainsFunc(n.programs, func(o *program) bool { return o.bound && o.device == v.Target }) {
				continue // it prefers that idle device, where others let go of what they keep
			}
			n.fail("%s wants %d bytes, all its programs together %d of the %d that are guaranteed to them, and it waits for others: %+v", p.user, p.need, asked, s.Memory, v)
		}
	}
}

// mayRely says whether what a job has of a device is there for it now. After it was admitted, or went on, programs may have
// to leave first; from then on nothing that befalls others takes it away.
func (n *node) mayRely(s *part) bool {
	if s.job.ended || s.job.limit == 0 || n.down[s.Device] {
		return false
	}
	s.cleared = s.cleared || !slices.ContainsFunc(n.programs, func(p *program) bool {
		if p.told == nil || p.device != s.Device || p.endless && n.now > p.toldAt+n.cfg.MaxWait+time.Second {
			return false
		}
		return p.toldAt <= s.since || !p.bound || slices.Contains([]vgpu.Reason{vgpu.ForGrant, vgpu.ForLimit, vgpu.ForDrain}, p.told.Reason)
	})
	return s.cleared && s.job.limit < 0
}

// checkRevoke checks that a job's program leaves its home only for the job's own sake, as long as the job has no more
// of the device than is guaranteed.
func (n *node) checkRevoke(p *program, e vgpu.Effect) {
	s := p.part
	if s == nil || s.job.ended || s.job.limit == 0 || !p.atHome() {
		return
	}
	switch e.Reason {
	case vgpu.ForMove:
		return
	case vgpu.ForDrain:
		if !n.down[s.Device] {
			n.fail("%s has to leave device %d, which is not drained", p.user, s.Device)
		}
		return
	case vgpu.ForLimit:
		if s.job.limit < 0 {
			n.fail("%s has to leave device %d for its limit, and has none", p.user, s.Device)
		}
		return
	}
	stays := uint64(0)
	for _, o := range s.alive() {
		if o.waits || o.growing {
			return // its own job may need the room
		}
		if o.atHome() && o.told == nil {
			stays += n.takes(o)
		}
	}
	if stays <= s.Memory {
		n.fail("%s has to leave device %d (%v), where its job has %d of the %d bytes that are guaranteed to it", p.user, s.Device, e, stays, s.Memory)
	}
}
