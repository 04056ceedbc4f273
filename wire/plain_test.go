package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

// met is the outcome for both sides of a connection without TLS.
func met(program, node string) (kind PlainKind, programSays, nodeSays error) {
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		kind, nodeSays = MeetPlain(far, node)
	}()
	programSays = GreetPlain(near, PlainLane, program)
	near.Close()
	<-done
	return kind, programSays, nodeSays
}

func TestPlainProofs(t *testing.T) {
	if kind, program, node := met("secret", "secret"); program != nil || node != nil || kind != PlainLane {
		t.Error(kind, program, node)
	}
	for _, tokens := range [][2]string{{"secret", "other"}, {"", "secret"}, {"secret", ""}} {
		if _, program, node := met(tokens[0], tokens[1]); !errors.Is(program, errNotTheToken) || !errors.Is(node, ErrProof) {
			t.Error(tokens, program, node)
		}
	}
	// Proofs of another side, kind or time differ.
	a, b := make([]byte, nonceSize), bytes.Repeat([]byte{1}, nonceSize)
	seen := map[string]bool{}
	for _, p := range [][]byte{
		proof("t", "program", PlainStream, a, b), proof("t", "node", PlainStream, a, b), proof("t", "program", PlainLane, a, b),
		proof("t", "program", PlainStream, b, a), proof("u", "program", PlainStream, a, b),
	} {
		if seen[string(p)] {
			t.Error("two proofs are the same")
		}
		seen[string(p)] = true
	}
	if plainMagic[0] != PlainFirst {
		t.Error("it begins otherwise than it says")
	}
}

// said is a side that sends something whatever it receives.
type said struct {
	io.Reader
	heard int
}

func (s *said) Write(b []byte) (int, error) {
	s.heard += len(b)
	return len(b), nil
}

// A side that does not know the token is refused, and learns nothing but a random number.
func FuzzMeetPlain(f *testing.F) {
	f.Add([]byte(plainMagic))
	f.Add(append(append([]byte(plainMagic), 1), make([]byte, 100)...))
	f.Add(append(append([]byte(plainMagic), 3), make([]byte, 100)...))
	f.Add([]byte{22, 3, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &said{Reader: bytes.NewReader(b)}
		if _, err := MeetPlain(s, "a token"); err == nil || s.heard > nonceSize {
			t.Fatalf("%v after %d bytes", err, s.heard)
		}
	})
}
