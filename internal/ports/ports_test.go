package ports

import (
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Many clusters that start at once have ports of their own, and give them back.
func TestPortsAreDistinct(t *testing.T) {
	const clusters, each = 8, 10
	var mu sync.Mutex
	var all []*Ports
	var group sync.WaitGroup
	for range clusters {
		group.Go(func() {
			p, err := Take(each)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, p)
		})
	}
	group.Wait()
	seen := map[int]bool{}
	for _, p := range all {
		if len(p.Numbers) != each || !slices.IsSorted(p.Numbers) {
			t.Errorf("got %v", p.Numbers)
		}
		for _, n := range p.Numbers {
			if seen[n] {
				t.Errorf("port %d twice", n)
			}
			seen[n] = true
		}
	}
	first := all[0].Numbers[0] / blockSize * blockSize
	if _, err := claimBlock(first); err != syscall.EADDRINUSE {
		t.Errorf("the block of %d can be claimed twice: %v", first, err)
	}
	back := 0 // another process may have claimed some meanwhile
	for _, p := range all {
		p.Release()
		if claim, err := claimBlock(p.Numbers[0] / blockSize * blockSize); err == nil {
			back++
			claim.Close()
		}
	}
	if back == 0 {
		t.Error("no block was given back")
	}
}

// A port on which another program listens is not taken.
func TestTakenPort(t *testing.T) {
	p, err := Take(3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.Numbers[1]})
	if err != nil {
		t.Skipf("another program was quicker: %v", err)
	}
	defer l.Close()
	if free(p.Numbers[1]) {
		t.Errorf("port %d seems to be free", p.Numbers[1])
	}
}

func TestTooManyPorts(t *testing.T) {
	if _, err := Take(60000); err == nil || !strings.Contains(err.Error(), "end other clusters") {
		t.Errorf("got %v", err)
	}
}

// What Address gives out is outside of what the kernel gives out, never given out twice, and listened on.
func TestAddress(t *testing.T) {
	low, ok := kernelPorts()
	seen := map[string]bool{}
	for range 2*blockSize + 1 {
		address, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if port := l.Addr().(*net.TCPAddr).Port; seen[address] || ok && port >= low {
			t.Errorf("got %s", address)
		}
		seen[address] = true
	}
}
