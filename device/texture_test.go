package device

import (
	"errors"
	"slices"
	"testing"
)

func TestArrayLevels(t *testing.T) {
	for _, tt := range []struct {
		name    string
		texture Texture
		want    []ArrayLevel
		size    uint64
	}{
		{"row", Texture{Format: 0x20, Channels: 1, Width: 10}, []ArrayLevel{{0, 10, 1, 1}}, 40},
		{"box", Texture{Format: 0x02, Channels: 4, Width: 10, Height: 3, Depth: 2}, []ArrayLevel{{0, 10, 3, 2}}, 480},
		{"mipmap", Texture{Format: 0x01, Channels: 1, Width: 40, Height: 20, Levels: 3}, []ArrayLevel{{0, 40, 20, 1}, {1024, 20, 10, 1}, {1536, 10, 5, 1}}, 1586},
		{"mipmap of a box", Texture{Format: 0x01, Channels: 1, Width: 2, Height: 2, Depth: 4, Levels: 3}, []ArrayLevel{{0, 2, 2, 4}, {512, 1, 1, 2}, {1024, 1, 1, 1}}, 1025},
		{"layers stay", Texture{Format: 0x01, Channels: 1, Width: 4, Height: 4, Depth: 3, Levels: 2, Flags: ArrayLayered}, []ArrayLevel{{0, 4, 4, 3}, {512, 2, 2, 3}}, 524},
	} {
		levels, size := tt.texture.ArrayLevels()
		if !slices.Equal(levels, tt.want) || size != tt.size || tt.texture.Check() != nil {
			t.Errorf("%s: %v, %d bytes, %v", tt.name, levels, size, tt.texture.Check())
		}
	}
}

func TestTextureCheck(t *testing.T) {
	good := Texture{Format: 0x20, Channels: 1, Width: 16, Height: 16, Levels: 1}
	for name, change := range map[string]func(*Texture){
		"format": func(t *Texture) { t.Format = 0x91 }, "channels": func(t *Texture) { t.Channels = 3 }, "resource": func(t *Texture) { t.Resource = 4 },
		"sparse": func(t *Texture) { t.Flags = 0x40 }, "surface of memory": func(t *Texture) { t.Surface, t.Resource, t.Size = true, LinearResource, 64 },
		"level": func(t *Texture) { t.Level = 1 }, "levels": func(t *Texture) { t.Levels = 33 }, "no bytes": func(t *Texture) { t.Resource = LinearResource },
		"width": func(t *Texture) { t.Width = 0 }, "pitch": func(t *Texture) { t.Resource, t.Pitch = PitchResource, 60 },
		"too large": func(t *Texture) { t.Width, t.Height, t.Depth = 1<<20, 1<<20, 1<<20 }, "mode": func(t *Texture) { t.Sampler.Address[2] = 4 },
		"filter": func(t *Texture) { t.Sampler.MipFilter = 2 }, "address": func(t *Texture) { t.Address = 1<<64 - 1 },
	} {
		wrong := good
		change(&wrong)
		if err := wrong.Check(); !errors.Is(err, ErrInvalidValue) && !errors.Is(err, ErrNotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
