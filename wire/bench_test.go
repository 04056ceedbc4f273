package wire

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

const childVariable = "MUSTER_WIRE_TEST_CONSUMER"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		consumeInChild()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// consumeInChild serves the ring whose memory is in descriptors 3 and 4, until
// standard input ends. Data are copied out of the arena, as a device would.
func consumeInChild() {
	s, err := Map(os.NewFile(3, "ring"), os.NewFile(4, "arena"))
	if err != nil {
		fmt.Println(err)
		return
	}
	c := NewConsumer(s)
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	fmt.Println("ready")
	device := make([]byte, BounceBuffer)
	for {
		h, _, err := c.Next(time.Minute)
		if errors.Is(err, ErrTimeout) {
			continue
		}
		if err != nil {
			s.Close(err.Error())
			return
		}
		if h.Length > 0 {
			data, err := s.Data(h.Data, h.Length)
			if err != nil {
				s.Close(err.Error())
				return
			}
			if h.Op.TakesData() {
				copy(device, data)
				c.Release(h.Release)
			} else {
				copy(data, device)
			}
		}
		s.Reply(h.Slot, 0, nil)
	}
}

// otherProcess starts this binary as the consumer of a new ring.
func otherProcess(b *testing.B) *Producer {
	b.Helper()
	ring, arena, err := Create(DefaultGeometry)
	if err != nil {
		b.Fatal(err)
	}
	defer ring.Close()
	defer arena.Close()
	s, err := Map(ring, arena)
	if err != nil {
		b.Fatal(err)
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=1")
	child.ExtraFiles = []*os.File{ring, arena}
	stdin, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		_ = child.Wait()
		s.Unmap()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		b.Fatalf("the other process: %q, %v", line, err)
	}
	return NewProducer(s)
}

func BenchmarkRingCall(b *testing.B) {
	p := otherProcess(b)
	for b.Loop() {
		if _, err := p.Call(&Synchronise{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// A launch with four parameters, as the program sees it.
func BenchmarkRingPost(b *testing.B) {
	p := otherProcess(b)
	launch := &Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: make([]byte, 32)}
	for b.Loop() {
		if err := p.Post(launch); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := p.Call(&Synchronise{}, nil); err != nil {
		b.Fatal(err)
	}
}

// Both copies overlap, so the optimum is the time of one plain copy.
func BenchmarkStaging(b *testing.B) {
	p := otherProcess(b)
	data := make([]byte, BounceBuffer)
	body := (&CopyIn{}).Append(nil)
	b.SetBytes(BounceBuffer)
	for b.Loop() {
		if err := p.SendData(Header{Op: OpCopyIn, Slot: -1}, body, data); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := p.Call(&Synchronise{}, nil); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPlainCopy(b *testing.B) {
	from, to := make([]byte, 16*BounceBuffer), make([]byte, 16*BounceBuffer)
	b.SetBytes(BounceBuffer)
	for i := 0; b.Loop(); i++ {
		at := i % 16 * BounceBuffer
		copy(to[at:at+BounceBuffer], from[at:at+BounceBuffer])
	}
}
