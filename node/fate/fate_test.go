package fate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"muster/internal/seeds"
)

// step is what happens in a case, and what the client is then.
type step struct {
	at   time.Duration
	do   func(b *Book, now time.Duration)
	want State
}

const client = Client(7)

func fault(b *Book, now time.Duration)   { b.Fault(now, client) }
func proven(b *Book, now time.Duration)  { b.Proven(now, client) }
func guilty(b *Book, _ time.Duration)    { b.Guilty(client) }
func asked(b *Book, now time.Duration)   { b.Due(now) }
func served(b *Book, _ time.Duration)    { b.Serve(client) }
func refused(b *Book, now time.Duration) { b.Refused(now, client) }

// due has the client go back if its time has come.
func due(b *Book, now time.Duration) {
	for _, c := range b.Due(now) {
		b.Serve(c)
	}
}

func TestStates(t *testing.T) {
	for name, steps := range map[string][]step{
		"an innocent goes back":         {{0, fault, Suspect}, {1, proven, Cleared}, {firstRest, due, Cleared}, {firstRest + 1, due, Shared}},
		"the guilty stays apart":        {{0, fault, Suspect}, {1, guilty, Apart}, {time.Hour, due, Apart}, {time.Hour, fault, Apart}},
		"its fault is told after that":  {{0, fault, Suspect}, {1, proven, Cleared}, {2, guilty, Apart}, {time.Hour, due, Apart}},
		"a kernel that never ends":      {{0, fault, Suspect}, {time.Hour, due, Suspect}, {time.Hour, fault, Suspect}},
		"a fault that all see is news":  {{0, fault, Suspect}, {1, fault, Suspect}, {2, proven, Cleared}},
		"twice in a row: twice as long": {{0, fault, Suspect}, {0, proven, Cleared}, {firstRest, due, Shared}, {firstRest, fault, Suspect}, {firstRest, proven, Cleared}, {2 * firstRest, due, Cleared}, {3 * firstRest, due, Shared}},
		"long ago is forgotten":         {{0, fault, Suspect}, {0, proven, Cleared}, {firstRest, due, Shared}, {forgets + 1, fault, Suspect}, {forgets + 1, proven, Cleared}, {forgets + 1 + firstRest, due, Shared}},
		"too many share":                {{0, refused, Cleared}, {firstRest, due, Shared}, {firstRest, refused, Cleared}, {2 * firstRest, due, Cleared}, {3 * firstRest, due, Shared}},
		"it cannot go back now":         {{0, fault, Suspect}, {0, proven, Cleared}, {firstRest, asked, Cleared}, {3 * firstRest, due, Shared}},
		"its worker dies meanwhile":     {{0, fault, Suspect}, {0, served, Suspect}, {0, proven, Cleared}, {0, served, Cleared}, {firstRest, due, Shared}},
		"one that shares is not guilty": {{0, guilty, Shared}, {0, proven, Shared}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBook()
			b.Join(0, client, Shared)
			for i, s := range steps {
				if s.do(b, s.at); b.State(client) != s.want {
					t.Fatalf("after step %d it is %s, and should be %s", i, b.State(client), s.want)
				}
			}
		})
	}
}

func TestJoin(t *testing.T) {
	for s, want := range map[State]State{Shared: Shared, Apart: Apart, Suspect: Cleared, Cleared: Cleared} {
		b := NewBook()
		if b.Join(0, client, s); b.State(client) != want {
			t.Errorf("%s becomes %s", s, b.State(client))
		}
	}
	b := NewBook()
	b.Join(0, client, Shared)
	if b.Leave(client); b.State(client) != Apart || b.Fault(0, client) {
		t.Error("a client that has gone is not apart")
	}
}

// TestWaves lets clients fault together, as MPS does: each of them runs what it had in flight
// apart. Some have a kernel that faults, some one that never ends. Whoever faults apart is
// guilty, nobody else ever is, and the innocent share again in the end.
func TestWaves(t *testing.T) {
	first, asked := seeds.First(t)
	rounds := uint64(200)
	if asked {
		rounds = 1
	}
	for seed := first; seed < first+rounds; seed++ {
		chance := rand.New(rand.NewPCG(seed, 1))
		b, now := NewBook(), time.Duration(0)
		n := 2 + chance.IntN(8)
		bad, endless := map[Client]bool{}, map[Client]bool{}
		for c := range Client(n) {
			b.Join(now, c, Shared)
			bad[c], endless[c] = chance.IntN(3) == 0, chance.IntN(4) == 0
		}
		told := map[Client]int{}
		rebuilds := map[Client]int{}
		for range 400 {
			now += time.Duration(chance.Int64N(int64(time.Second)))
			var sharing []Client
			for c := range Client(n) {
				if b.State(c) == Shared {
					sharing = append(sharing, c)
				}
			}
			if slices.ContainsFunc(sharing, func(c Client) bool { return bad[c] }) && chance.IntN(2) == 0 {
				chance.Shuffle(len(sharing), func(i, j int) { sharing[i], sharing[j] = sharing[j], sharing[i] })
				for _, c := range sharing {
					if b.Fault(now, c) {
						rebuilds[c]++
					}
				}
			}
			for c := range Client(n) {
				if b.State(c) != Suspect || chance.IntN(2) == 0 {
					continue
				}
				switch {
				case bad[c] && b.Guilty(c):
					told[c]++
				case !endless[c] && !bad[c]:
					b.Proven(now, c)
				}
			}
			for _, c := range b.Due(now) {
				b.Serve(c)
				rebuilds[c]++
			}
			if at, ok := b.Next(); ok && at <= now {
				t.Fatalf("MUSTER_SEED=%d: a client was due at %v, and it is %v", seed, at, now)
			}
		}
		for c := range Client(n) {
			switch s := b.State(c); {
			case bad[c] && (s != Apart || told[c] != 1):
				t.Errorf("client %d caused the fault, is %s and was told %d times", c, s, told[c])
			case !bad[c] && told[c] > 0:
				t.Errorf("client %d was told of a fault that it did not cause", c)
			case !bad[c] && !endless[c] && s == Suspect:
				t.Errorf("client %d has ended what it had in flight, and is a suspect still", c)
			case rebuilds[c] > 2*n+2:
				t.Errorf("client %d was rebuilt %d times for %d others", c, rebuilds[c], n)
			}
		}
		if t.Failed() {
			t.Fatalf("MUSTER_SEED=%d", seed)
		}
	}
}

// A client whose neighbours fault for ever is rebuilt less and less often.
func TestRebuildsAreBounded(t *testing.T) {
	b, faults := NewBook(), 0
	b.Join(0, client, Shared)
	for now := time.Duration(0); now < time.Hour; now += 10 * time.Millisecond {
		if b.Fault(now, client) {
			faults++
			b.Proven(now, client)
		}
		due(b, now)
	}
	if most := 9 + int(time.Hour/longestRest); faults > most {
		t.Errorf("%d times in an hour, and %d are enough", faults, most)
	}
}
