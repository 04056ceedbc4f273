package devicetest

import (
	_ "embed"
	"math"

	"muster/device"
)

//go:embed kernels/textures.ptx
var textureKernels []byte

var textureTests = []test{
	{"arrays", always, testArrayTexture},
	{"memory", always, testMemoryTextures},
	{"surfaces", always, testSurface},
	{"handles stay", always, testHandlesStay},
}

const textureWidth, textureHeight = 32, 8

// textured is a context with the texture kernels, and memory for an array of floats. Each
// element is 100 times its row plus its column.
type textured struct {
	*opened
	can        *device.ContextCan
	array, out uint64
}

func (b *bench) openTextured(d device.Device) *textured {
	b.Helper()
	o := b.openOn(d, device.Config{Arena: b.arena()})
	if o.Can().NewTexture == nil {
		b.Skip("this device has no textures")
	}
	o.module = o.load(textureKernels)
	t := &textured{opened: o, can: o.Can(), array: o.mapped(0, o.g)}
	t.out = t.array + 64<<10
	t.putRows(0)
	return t
}

func (t *textured) putRows(more float32) {
	t.Helper()
	var w []uint32
	for y := range textureHeight {
		for x := range textureWidth {
			w = append(w, math.Float32bits(float32(100*y+x)+more))
		}
	}
	t.put(t.array, bytesOf(w))
}

func (t *textured) floatArray() device.Texture {
	clamp := [3]uint32{1, 1, 1}
	return device.Texture{Address: t.array, Format: 0x20, Channels: 1, Width: textureWidth, Height: textureHeight, Flags: device.ArraySurface, Sampler: device.Sampler{Address: clamp}}
}

func (t *textured) make(d device.Texture, wanted uint64) uint64 {
	t.Helper()
	handle, err := t.can.NewTexture(d, wanted)
	t.ok(err)
	return handle
}

// reads checks the values that a texture returns along a row.
func (t *textured) reads(handle uint64, x, y float32, want func(i int) float32) {
	t.Helper()
	t.launch(t.stream, "read", 1, textureWidth, handle, t.out, x, y)
	for i, w := range t.getWords(t.out, textureWidth) {
		if got := math.Float32frombits(w); got != want(i) {
			t.Fatalf("at (%v, %v): %v, want %v", x+float32(i), y, got, want(i))
		}
	}
}

// A texture reads what was copied to the memory of its array before and after it was made.
func testArrayTexture(b *bench) {
	t := b.openTextured(b.dev)
	point := t.make(t.floatArray(), 0)
	t.reads(point, 0.5, 3.5, func(i int) float32 { return float32(300 + i) })
	t.reads(point, -2.5, 99, func(i int) float32 { return float32(700 + max(0, i-3)) })
	smooth := t.floatArray()
	smooth.Sampler.Filter = 1
	t.reads(t.make(smooth, 0), 0.75, 4, func(i int) float32 { return min(float32(i)+350.25, 381) })
	t.putRows(1000)
	t.reads(point, 0.5, 3.5, func(i int) float32 { return float32(1300 + i) })
	t.putWords(t.array+4*(textureWidth*3+5), math.Float32bits(7)) // one element
	t.reads(point, 5.5, 3.5, func(i int) float32 {
		if i == 0 {
			return 7
		}
		return float32(1300 + min(i+5, textureWidth-1))
	})
	t.ok(t.can.DropTexture(point, false))
	t.refused(t.can.DropTexture(point, false), device.ErrNotFound)
}

func testMemoryTextures(b *bench) {
	t := b.openTextured(b.dev)
	linear := device.Texture{Resource: device.LinearResource, Address: t.array, Format: 0x20, Channels: 1, Size: 4 * 16}
	t.launch(t.stream, "fetch", 1, textureWidth, t.make(linear, 0), t.out)
	for i, w := range t.getWords(t.out, textureWidth) {
		want := float32(i)
		if i >= 16 {
			want = 0
		}
		if got := math.Float32frombits(w); got != want {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
	pitched := t.floatArray()
	pitched.Resource, pitched.Flags, pitched.Pitch = device.PitchResource, 0, 4*textureWidth
	t.reads(t.make(pitched, 0), 0.5, 6.5, func(i int) float32 { return float32(600 + i) })
	wrong := linear
	wrong.Channels = 3
	_, err := t.can.NewTexture(wrong, 0)
	t.refused(err, device.ErrNotSupported)
}

// What kernels write to a surface is in the memory of the array, and in its textures.
func testSurface(b *bench) {
	t := b.openTextured(b.dev)
	texture, d := t.make(t.floatArray(), 0), t.floatArray()
	d.Surface = true
	surface := t.make(d, 0)
	for range 3 {
		t.launch(t.stream, "more", textureHeight, textureWidth, surface)
	}
	for i, w := range t.getWords(t.array, textureWidth*textureHeight) {
		if got, want := math.Float32frombits(w), float32(100*(i/textureWidth)+i%textureWidth+3); got != want {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
	t.reads(texture, 0.5, 2.5, func(i int) float32 { return float32(203 + i) })
	t.putWords(t.array+4*textureWidth*2, math.Float32bits(1))
	t.launch(t.stream, "more", textureHeight, textureWidth, surface)
	t.reads(texture, 0.5, 2.5, func(i int) float32 {
		if i == 0 {
			return 2
		}
		return float32(204 + i)
	})
}

// Textures can have the same handles in another context as in the first, whatever was made and
// dropped there before.
func testHandlesStay(b *bench) {
	first := b.openTextured(b.dev)
	var handles []uint64
	for range 6 {
		handles = append(handles, first.make(first.floatArray(), 0))
	}
	first.ok(first.Close())
	second := b.openTextured(b.another())
	for _, i := range []int{1, 3, 4} {
		same(b, "handle", []uint64{second.make(second.floatArray(), handles[i])}, []uint64{handles[i]})
	}
	second.reads(handles[3], 0.5, 1.5, func(i int) float32 { return float32(100 + i) })
}
