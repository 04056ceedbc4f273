package clientcore

import (
	"encoding/binary"
	"slices"
	"testing"

	"muster/device"
)

// placesOf is what decodePlaces reads.
func placesOf(all ...device.Global) (data []byte) {
	for _, g := range all {
		data = binary.LittleEndian.AppendUint64(data, g.Address)
		data = binary.LittleEndian.AppendUint64(data, g.Size)
		data = binary.LittleEndian.AppendUint32(data, flag(g.Managed))
		data = binary.LittleEndian.AppendUint32(data, uint32(len(g.Name)))
		data = append(data, g.Name...)
	}
	return data
}

func FuzzPlaces(f *testing.F) {
	f.Add(placesOf(device.Global{Name: "table", Address: 1 << 40, Size: 16}, device.Global{Name: "", Size: 1, Managed: true}))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		places, err := decodePlaces(data)
		if err != nil {
			return
		}
		again, err := decodePlaces(placesOf(places...))
		if err != nil || !slices.Equal(places, again) {
			t.Errorf("%v became %v (%v)", places, again, err)
		}
	})
}
