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

// Any bytes are refused or give a map that could be made: kernels can write maps themselves.
func TestDecodeAnything(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, seed))
	m := Map{Type: F16, Rank: 3, Address: 1 << 40, Sizes: [MaxRank]uint64{64, 32, 16}, Strides: [MaxRank - 1]uint64{128, 4096}, Box: [MaxRank]uint32{32, 8, 4}, Steps: [MaxRank]uint32{1, 1, 1}}
	made := m.Encode()
	taken, refused := 0, 0
	for range 20000 {
		b := made
		for range 1 + rng.IntN(6) {
			b[rng.IntN(Size)] ^= 1 << rng.IntN(8)
		}
		m, err := Decode(&b)
		if err != nil {
			refused++
			continue
		}
		taken++
		if err := m.Check(); err != nil {
			t.Fatalf("seed %d: %x gives %+v: %v", seed, b, m, err)
		}
	}
	if taken == 0 || refused == 0 {
		t.Errorf("%d were taken, %d were refused", taken, refused)
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
