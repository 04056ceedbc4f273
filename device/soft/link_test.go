package soft

import (
	"errors"
	"testing"

	"muster/device"
)

// The texts of all inputs of a link together, after decompression, are limited to the size of one
// image.
func TestLinkOfTooMuchText(t *testing.T) {
	inputs := []device.LinkInput{{Kind: device.LinkPTX, Data: []byte("0123456789")}, {Kind: device.LinkPTX, Data: []byte("0123456789")}}
	if texts, err := linkTexts(inputs, 20); err != nil || len(texts) != 2 {
		t.Errorf("%d texts of 20 bytes, of which there may be 20: %v", len(texts), err)
	}
	if _, err := linkTexts(inputs, 19); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("texts of 20 bytes, of which there may be 19: %v", err)
	}
}
