package node

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"muster/node/ask"
	"muster/wire/grant"
	"muster/wire/status"
)

// furtherOf is what a node says of the first client's further devices.
func furtherOf(t *testing.T, f *fixture) []status.Further {
	s := statusOf(t, f)
	if len(s.Clients) == 0 {
		return nil
	}
	return s.Clients[0].Further
}

// A program whose launches are mapped is lent a further device while nobody needs it, and gives it
// back to the first program that does, though both are busy.
func TestFurtherDevicesAreLentWhileNobodyNeedsThem(t *testing.T) {
	cfg := testConfig()
	cfg.VGPUs, cfg.Quantum = 1, 0
	f := run(t, cfg)
	h := hello()
	h.Mapping = "gr"
	a, err := connect(f.socket, h, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.leave)
	a.synchronise(t) // it has device 0
	a.says(t, `{"kind":"want_further","message":{"device":1,"memory":1048576}}`)
	eventually(t, "device 1 is lent", func() bool { all := furtherOf(t, f); return len(all) == 1 && all[0].Lent && all[0].Device == 1 })
	a.says(t, `{"kind":"ran_further","message":{"device":1,"loan":2,"kernels":4,"busy":1000000000,"moved":77}}`)
	eventually(t, "what ran there is told", func() bool {
		s := statusOf(t, f)
		all := s.Clients[0].Further
		return len(all) == 1 && all[0].Kernels == 4 && all[0].Moved == 77 && s.Clients[0].Kernels == 7 && s.Devices[1].BusyTime == 1 && len(s.Clients) == 1
	})
	// What went between devices is told by link; a worker's counts do not go back.
	a.says(t, `{"kind":"report","message":{"stats":{"links":[{"from":-1,"to":0,"bytes":5},{"from":0,"to":1,"bytes":77}]}}}`)
	a.says(t, `{"kind":"report","message":{"stats":{"links":[{"from":0,"to":1,"bytes":70}]}}}`)
	eventually(t, "links are told", func() bool {
		s := statusOf(t, f)
		here := func(device int) status.End { return status.End{Node: s.Node, Device: device} }
		want := []status.Link{{From: here(-1), To: here(0), Bytes: 5}, {From: here(0), To: here(1), Bytes: 77}}
		return reflect.DeepEqual(s.Links, want) && reflect.DeepEqual(s.Clients[0].Links, want)
	})
	ran := statusOf(t, f).Clients[0].Ran
	if len(ran) != 2 || ran[0] != (status.RanOn{Device: 0, Kernels: 3, BusyTime: 0.005}) || ran[1] != (status.RanOn{Device: 1, Kernels: 4, BusyTime: 1}) {
		t.Errorf("it ran %+v", ran)
	}
	b := mustConnect(t, f)
	b.synchronise(t) // it has device 1
	eventually(t, "device 1 is another one's", func() bool {
		s := statusOf(t, f)
		return len(s.Clients) == 2 && !s.Clients[0].Further[0].Lent && s.Clients[1].Device != nil && *s.Clients[1].Device == 1
	})
	// While it has that, nothing is lent.
	a.says(t, `{"kind":"want_further","message":{"device":1,"memory":1048576}}`)
	a.says(t, `{"kind":"pong","message":{"number":0}}`) // which ends it, once all before is done
	eventually(t, "the client has ended", func() bool { return len(statusOf(t, f).Clients) == 1 })
	s := statusOf(t, f)
	if len(s.Links) != 2 {
		t.Errorf("what a program did that has gone is forgotten: %+v", s.Links)
	}
	if ended := s.Ended[len(s.Ended)-1]; s.Devices[1].Assigned != 1 || ended.Further[0].Lent {
		t.Errorf("a device is lent that another program has: %+v", ended)
	}
}

// A worker whose client is not mapped has no further devices to speak of, and a program cannot name
// a mapper that there is not.
func TestFurtherDevicesAreOfMappedPrograms(t *testing.T) {
	f := run(t, testConfig())
	p := mustConnect(t, f)
	p.says(t, `{"kind":"want_further","message":{"device":1,"memory":1}}`)
	eventually(t, "the client has ended", func() bool { return len(statusOf(t, f).Clients) == 0 })
	h := hello()
	h.Mapping = "nonsense"
	if q, err := connect(f.socket, h, 0); err == nil {
		q.leave()
		t.Error("a program has a mapper that there is not")
	}
}

// A program that asks for three devices on a node with two sees three.
func TestProgramsSeeAsManyDevicesAsTheyAskFor(t *testing.T) {
	f := run(t, testConfig())
	h := hello()
	h.Gpus = 3
	p, err := connect(f.socket, h, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer p.leave()
	if len(p.devices) != 3 {
		t.Errorf("it sees %d", len(p.devices))
	}
	p.synchronise(t)
}

// A mapped program under a grant is lent the job's other devices, within its share of them and within
// the limit of the grant, and nothing else; other programs are lent nothing of the job's. When the job
// is suspended, the device goes back.
func TestFurtherDevicesUnderGrants(t *testing.T) {
	cfg := testConfig()
	cfg.Devices = append(cfg.Devices, cfg.Devices[1])
	cfg.Devices[2].Name, cfg.Devices[2].Index = "Third", 2
	f := run(t, cfg)
	g := testGrant("job", grant.Device{Device: 0}, grant.Device{Device: 1, Memory: 64 << 20})
	mustAdmit(t, f, g)
	h := hello()
	h.Grant, h.Mapping = string(g.Secret), "gr"
	a, err := connect(f.socket, h, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.leave)
	a.synchronise(t)
	want := func(p *program, device, memory int) {
		p.says(t, fmt.Sprintf(`{"kind":"want_further","message":{"device":%d,"memory":%d}}`, device, memory))
	}
	lent := func(i int) (devices []int) {
		for _, one := range statusOf(t, f).Clients[i].Further {
			if one.Lent {
				devices = append(devices, one.Device)
			}
		}
		return devices
	}
	done := func(p *program, i int) { // with all that it said
		p.says(t, `{"kind":"ran","message":{"kernels":100,"busy":1}}`)
		eventually(t, "it was heard", func() bool { return statusOf(t, f).Clients[i].Kernels >= 100 })
	}
	want(a, 2, 1<<20)   // which is not the job's
	want(a, 1, 100<<20) // more than its share
	want(a, 1, 1<<20)
	eventually(t, "device 1 is lent", func() bool { return slices.Equal(lent(0), []int{1}) })
	if known, err := ask.Grants(f.socket); err != nil || known.Grants[0].Devices[0].Clients != 1 || known.Grants[0].Devices[1].Clients != 1 {
		t.Errorf("a program that uses both devices is not counted on both: %+v, %v", known, err)
	}

	h = hello()
	h.Mapping = "gr"
	b, err := connect(f.socket, h, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.leave)
	b.synchronise(t) // it has device 1 or 2
	want(b, 0, 1<<20)
	want(b, 1, 1<<20)
	want(b, 2, 1<<20)
	done(b, 1)
	if all := lent(1); slices.Contains(all, 0) || slices.Contains(all, 1) {
		t.Errorf("a program without the grant is lent %v", all)
	}

	if _, err := ask.LimitGrant(f.socket, "job", 1); err != nil {
		t.Fatal(err)
	}
	a.says(t, `{"kind":"released_further","message":{"device":1,"loan":2}}`) // as it was asked to
	eventually(t, "device 1 is given back", func() bool { return len(lent(0)) == 0 })
	want(a, 1, 1<<20) // beyond the limit
	done(a, 0)
	if all := lent(0); len(all) > 0 {
		t.Errorf("the limit is 1, and %v is lent beside the job's device", all)
	}
}
