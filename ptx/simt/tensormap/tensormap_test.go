package tensormap

import (
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
)

// described is a description that a driver was given, and the bytes that it made of it.
type described struct {
	Type       Type     `json:"type"`
	Address    uint64   `json:"address"`
	Sizes      []uint64 `json:"sizes"`
	Strides    []uint64 `json:"strides"`
	Box        []uint32 `json:"box"`
	Steps      []uint32 `json:"steps"`
	Interleave uint32   `json:"interleave"`
	Swizzle    Swizzle  `json:"swizzle"`
	Promotion  uint32   `json:"promotion"`
	Fill       uint32   `json:"fill"`
	Map        []byte   `json:"map"` // empty: it refused
}

// What the driver of an H200 made of descriptions, and which it refused, is what this
// package makes of them.
func TestDriver(t *testing.T) {
	f, err := os.Open("../testdata/gpu/tensormap.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Maps []described `json:"maps"`
	}
	if err := json.NewDecoder(plain).Decode(&recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded.Maps) < 1000 {
		t.Fatalf("%d descriptions", len(recorded.Maps))
	}
	for i, d := range recorded.Maps {
		m := Map{
			Type: d.Type, Rank: len(d.Sizes), Address: d.Address, Interleave: d.Interleave, Swizzle: d.Swizzle, Promotion: d.Promotion, NaN: d.Fill == 1,
		}
		copy(m.Sizes[:], d.Sizes)
		copy(m.Strides[:], d.Strides)
		copy(m.Box[:], d.Box)
		copy(m.Steps[:], d.Steps)
		err := m.Check()
		if d.Fill > 1 || d.Interleave > 0 && len(d.Map) == 0 {
			continue // Map has no such fill; the rules for interleaved tensors are not all known
		}
		if (err != nil) != (len(d.Map) == 0) {
			t.Errorf("description %d, %+v: the driver refused it: %v; here: %v", i, d, len(d.Map) == 0, err)
		}
		if err != nil || len(d.Map) == 0 {
			continue
		}
		got := m.Encode()
		if string(got[:]) != string(d.Map) {
			t.Errorf("description %d, %+v: got\n%x, want\n%x", i, d, got, d.Map)
		}
		if back, err := Decode(&got); err != nil || back != m {
			t.Errorf("description %d: %+v comes back as %+v (%v)", i, m, back, err)
		}
	}
}

// Any bytes are refused or give a map within bounds.
func TestDecodeAnything(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, seed))
	taken := 0
	for range 20000 {
		var b [Size]byte
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		b[0] &^= 15
		m, err := Decode(&b)
		if err != nil {
			continue
		}
		taken++
		if m.Rank < 1 || m.Rank > MaxRank || m.Type >= typeCount {
			t.Fatalf("seed %d: %x gives %+v", seed, b, m)
		}
		for i := range m.Rank {
			if m.Sizes[i] == 0 || m.Box[i] < 1 || m.Box[i] > boxLimit || m.Steps[i] < 1 || m.Steps[i] > stepLimit {
				t.Fatalf("seed %d: %x gives %+v", seed, b, m)
			}
		}
	}
	if taken == 0 {
		t.Error("all were refused")
	}
}

func TestReplace(t *testing.T) {
	m := Map{Type: F16, Rank: 1, Address: 1 << 20, Sizes: [MaxRank]uint64{100}, Box: [MaxRank]uint32{64}, Steps: [MaxRank]uint32{1}}
	b := m.Encode()
	if err := Replace(&b, 1<<30+8); err == nil {
		t.Error("an address that is not aligned was taken")
	}
	if err := Replace(&b, 1<<30); err != nil {
		t.Error(err)
	}
	if got, err := Decode(&b); err != nil || got.Address != 1<<30 {
		t.Errorf("got %+v, %v", got, err)
	}
}
