package tensormap

import (
	"compress/gzip"
	"encoding/binary"
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

	// In im2col mode, instead of a box.
	Channels uint32  `json:"channels"`
	Pixels   uint32  `json:"pixels"`
	Lower    []int32 `json:"lower"`
	Upper    []int32 `json:"upper"`
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
		if m.Im2col = d.Lower != nil; m.Im2col {
			m.Box[0], m.Pixels = d.Channels, d.Pixels
			copy(m.Lower[:], d.Lower)
			copy(m.Upper[:], d.Upper)
		}
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

// randomColumns returns a description for im2col mode.
func randomColumns(rng *rand.Rand) Map {
	m := Map{Type: Type(rng.IntN(int(typeCount))), Rank: 3 + rng.IntN(3), Address: 16 * rng.Uint64N(1<<50), Im2col: true, Pixels: 1 + rng.Uint32N(100)}
	m.Box[0] = uint32(16 / m.Type.Bytes())
	limit := int32(1) << (cornerBits(m.Rank) - 1)
	for i := range m.Rank {
		m.Sizes[i], m.Steps[i] = 1<<17+rng.Uint64N(1<<31), 1+rng.Uint32N(8)
		if i > 0 {
			m.Strides[i-1] = 16 * rng.Uint64N(1<<36)
		}
		if i < m.Rank-2 {
			m.Lower[i], m.Upper[i] = rng.Int32N(2*limit)-limit, rng.Int32N(2*limit)-limit
		}
	}
	return m
}

// Descriptions for im2col mode come back from their bytes.
func TestColumns(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 2000 {
		m := randomColumns(rng)
		if err := m.Check(); err != nil {
			t.Fatalf("seed %d: %+v: %v", seed, m, err)
		}
		b := m.Encode()
		if back, err := Decode(&b); err != nil || back != m {
			t.Fatalf("seed %d: %+v comes back as %+v (%v)", seed, m, back, err)
		}
	}
	// Where the parts lie: the corners beside each other in word 14, the pixels in word 15.
	m := Map{
		Type: F16, Rank: 4, Address: 1 << 40, Sizes: [MaxRank]uint64{64, 9, 14, 64}, Strides: [MaxRank - 1]uint64{128, 1152, 16128}, Box: [MaxRank]uint32{8},
		Steps: [MaxRank]uint32{1, 2, 2, 1}, Im2col: true, Pixels: 64, Lower: [3]int32{-1, -2}, Upper: [3]int32{-3, 4},
	}
	b := m.Encode()
	for word, want := range map[int]uint32{2: 1 | 3<<4 | 6<<7, 13: 7<<24 | 1<<3 | 1<<6, 14: 0x04fdfeff, 15: 63} {
		if got := binary.LittleEndian.Uint32(b[4*word:]); got != want {
			t.Errorf("word %d is %#x, want %#x", word, got, want)
		}
	}
}

// What the manuals of CUDA and PTX do not allow in im2col mode is refused.
func TestColumnLimits(t *testing.T) {
	good := Map{
		Type: F32, Rank: 4, Sizes: [MaxRank]uint64{64, 9, 14, 64}, Strides: [MaxRank - 1]uint64{128, 1152, 16128}, Box: [MaxRank]uint32{8},
		Steps: [MaxRank]uint32{1, 1, 1, 1}, Im2col: true, Pixels: 64,
	}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m *Map){
		"two dimensions":            func(m *Map) { m.Rank = 2 },
		"no pixels":                 func(m *Map) { m.Pixels = 0 },
		"1025 pixels":               func(m *Map) { m.Pixels = 1025 },
		"no channels":               func(m *Map) { m.Box[0] = 0 },
		"257 channels":              func(m *Map) { m.Box[0] = 257 },
		"rows of 12 bytes":          func(m *Map) { m.Box[0] = 3 },
		"rows beyond the swizzle":   func(m *Map) { m.Box[0], m.Swizzle = 12, Swizzle32 },
		"a corner of nine bits":     func(m *Map) { m.Lower[0] = -129 },
		"an upper corner of 128":    func(m *Map) { m.Upper[1] = 128 },
		"an empty box":              func(m *Map) { m.Lower[0], m.Upper[0] = 4, -5 },
		"a step of 9":               func(m *Map) { m.Steps[2] = 9 },
		"more than a shared memory": func(m *Map) { m.Box[0], m.Pixels = 256, 1024 },
	} {
		m := good
		if change(&m); m.Check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// Fields that are replaced one by one make zeros the map that Encode makes, but for what
// only the driver writes.
func TestSet(t *testing.T) {
	m := Map{
		Type: BF16, Rank: 5, Address: 1<<56 + 16, Sizes: [MaxRank]uint64{1 << 32, 2, 3, 4, 5}, Strides: [MaxRank - 1]uint64{1<<40 - 16, 32, 48, 1 << 39},
		Box: [MaxRank]uint32{256, 255, 1, 2, 1}, Steps: [MaxRank]uint32{8, 7, 1, 2, 3}, Interleave: 2, Swizzle: Swizzle64, NaN: true,
	}
	for t2, number := range map[Type]uint64{BF16: 10, F32: 7, TF32: 11, TF32FTZ: 12, U8: 0} {
		m.Type = t2
		var b [Size]byte
		for i := range b {
			b[i] = 0xff // every bit of a field is replaced
		}
		want := m.Encode()
		FieldAddress.Set(&b, 0, m.Address)
		FieldRank.Set(&b, 0, 4)
		for i := range MaxRank {
			FieldBox.Set(&b, i, uint64(m.Box[i]))
			FieldSize.Set(&b, i, m.Sizes[i])
			FieldStep.Set(&b, i, uint64(m.Steps[i]))
			if i > 0 {
				FieldStride.Set(&b, i-1, m.Strides[i-1])
			}
		}
		FieldType.Set(&b, 0, number)
		FieldInterleave.Set(&b, 0, uint64(m.Interleave))
		FieldSwizzle.Set(&b, 0, uint64(m.Swizzle))
		FieldFill.Set(&b, 0, 1)
		for word, other := range map[int]uint32{2: 0xf | 3<<17 | 0x1fff<<19, 7: 0xffff << 16, 13: 0x1ff << 15} { // bits of no such field
			at := binary.LittleEndian.Uint32(b[4*word:])
			if at&other != other {
				t.Errorf("word %d: %#x, other bits were changed", word, at)
			}
			binary.LittleEndian.PutUint32(b[4*word:], at&^other)
		}
		if string(b[:60]) != string(want[:60]) {
			t.Errorf("type %d: got\n%x, want\n%x", t2, b[:60], want[:60])
		}
	}
}

// Any bytes are refused or give a map that could be made: kernels can write maps themselves.
func TestDecodeAnything(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, seed))
	m := Map{Type: F16, Rank: 3, Address: 1 << 40, Sizes: [MaxRank]uint64{64, 32, 16}, Strides: [MaxRank - 1]uint64{128, 4096}, Box: [MaxRank]uint32{32, 8, 4}, Steps: [MaxRank]uint32{1, 1, 1}}
	columns := randomColumns(rng)
	made := [...][Size]byte{m.Encode(), columns.Encode()}
	taken, refused := 0, 0
	for i := range 20000 {
		b := made[i%2]
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
