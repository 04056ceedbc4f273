package ranges

import (
	"math/rand/v2"
	"slices"
	"testing"

	"muster/device"
)

// Every byte of a range is in exactly one box, at its place in the array, and no other byte is.
func TestBlocksAreTheRange(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4)) // seed 3, 4
	for range 2000 {
		texture := device.Texture{
			Format: 0x20, Channels: []uint32{1, 2, 4}[r.IntN(3)], Width: 1 + r.Uint64N(6), Height: r.Uint64N(5), Depth: r.Uint64N(4), Levels: 1 + r.Uint32N(3),
		}
		element := device.ElementSize(texture.Format, texture.Channels)
		levels, size := texture.ArrayLevels()
		from := r.Uint64N(size) / element * element
		to := min(size, from+element*(1+r.Uint64N(80)))
		var want, got []uint64
		for _, l := range levels {
			end := l.Offset + l.Width*l.Height*l.Depth*element
			for b := max(from, l.Offset); b < min(to, end); b++ {
				want = append(want, b)
			}
		}
		for _, k := range BlocksOf(levels, element, from, to) {
			l := levels[k.Level]
			row := l.Width * element
			if k.X+k.Width > row || k.Y+k.Height > l.Height || k.Z+k.Depth > l.Depth {
				t.Fatalf("%+v is outside of %+v", k, l)
			}
			for z := range k.Depth {
				for y := range k.Height {
					for x := range k.Width {
						at := l.Offset + ((k.Z+z)*l.Height+k.Y+y)*row + k.X + x
						if inBox := k.Offset + (z*l.Height+y)*row + x; inBox != at {
							t.Fatalf("%+v of %+v: byte %d of memory is byte %d of the array", k, l, inBox, at)
						}
						got = append(got, at)
					}
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v, bytes %d to %d: %v, want %v", texture, from, to, got, want)
		}
	}
}

// A range is cut into few boxes, however large it is.
func TestBlocksAreFew(t *testing.T) {
	texture := device.Texture{Format: 0x20, Channels: 1, Width: 1000, Height: 1000, Depth: 1000}
	levels, size := texture.ArrayLevels()
	if all := BlocksOf(levels, 4, 4004, size-4); len(all) != 5 {
		t.Errorf("%d boxes: %+v", len(all), all)
	}
}
