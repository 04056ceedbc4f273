package clientcore

import (
	"testing"

	"muster/device"
)

// A module that came and went leaves nothing that later contexts would load.
func TestJournalForgetsWhatIsOver(t *testing.T) {
	const chunk = 2 << 20
	m := newModules(chunk)
	load := func() uint64 {
		m.Last++
		m.All[m.Last] = &Module{Placed: true, Info: device.ImageInfo{Memory: chunk}}
		m.enter(Entry{Module: m.Last})
		m.recount()
		return m.Last
	}
	unload := func(serial uint64) {
		m.enter(Entry{serial, true})
		m.tidy()
		m.recount()
		had := m.Variables
		if m.count(chunk); m.Variables != had {
			t.Errorf("%d bytes, counted anew %d", had, m.Variables)
		}
	}
	a, b := load(), load()
	unload(a)
	if len(m.Journal) != 3 || m.Variables != 2*chunk {
		t.Fatalf("%d entries, %d bytes: the first module keeps the second where it is", len(m.Journal), m.Variables)
	}
	c := load()
	unload(b)
	unload(c)
	if len(m.Journal) != 0 || m.Variables != 0 || len(m.All) != 0 {
		t.Errorf("%d entries, %d bytes of %d modules that are no more", len(m.Journal), m.Variables, len(m.All))
	}
}
