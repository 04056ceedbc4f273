package worker

import (
	"encoding/binary"
	"errors"
	"testing"

	"muster/device"
)

// encodeLink writes what the library sends.
func encodeLink(l device.Link) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(l.Options)))
	for _, o := range l.Options {
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, o.Option), o.Value)
	}
	for _, in := range l.Inputs {
		b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(in.Kind)), uint32(len(in.Name)))
		b = append(append(binary.LittleEndian.AppendUint64(b, uint64(len(in.Data))), in.Name...), in.Data...)
	}
	return b
}

func FuzzDecodeLink(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeLink(device.Link{}))
	f.Add(encodeLink(device.Link{
		Options: []device.LinkOption{{Option: 7, Value: 3}},
		Inputs:  []device.LinkInput{{Kind: device.LinkPTX, Name: "a", Data: []byte("text")}, {Kind: device.LinkLibrary}},
	}))
	f.Fuzz(func(t *testing.T, image []byte) {
		l, err := decodeLink(image)
		if err != nil {
			if !errors.Is(err, device.ErrInvalidValue) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if again := encodeLink(l); string(again) != string(image) {
			t.Errorf("%x became %x", image, again)
		}
	})
}
