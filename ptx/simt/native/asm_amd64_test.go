//go:build linux && amd64

package native

import (
	"encoding/hex"
	"testing"
)

// The bytes are those that LLVM's assembler makes of the text, but that
// displacements always have 32 bits here.
func TestEncodings(t *testing.T) {
	tests := []struct {
		text string
		want string
		emit func(a *assembler)
	}{}
	for _, tt := range tests {
		var a assembler
		tt.emit(&a)
		if got := hex.EncodeToString(a.code); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}

func spread1(p place) place {
	p.bcast = true
	return p
}
