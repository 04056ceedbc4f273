// Package ports finds TCP ports of this machine for daemons that begin to listen only later, and that have
// to know each other's ports before. It knows nothing about who listens.
//
// Ports are taken in blocks below the range from which the kernel chooses ports for outgoing
// connections, and for those who listen on any port: one of them could otherwise take a port between
// the moment it is chosen and the moment a daemon listens.
//
// Processes that take ports at the same time coordinate through sockets with abstract names, one for
// each block. These need no file, and the kernel frees a name with the last process that holds its
// socket.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"muster/internal/wholefile"
)

const (
	firstPort = 10240
	lastPort  = 32768 // where the kernel's range begins by default
	blockSize = 256
)

// Ports are port numbers on which no process listens, with the claims that keep others off their blocks.
type Ports struct {
	Numbers []int
	Claims  []*os.File
}

// Release gives the ports back.
func (p *Ports) Release() {
	for _, c := range p.Claims {
		c.Close()
	}
	p.Claims = nil
}

// own are the ports that Address gives out.
var own struct {
	mu   sync.Mutex
	left []int
}

// Address is an address of this machine with a port that nobody else gets from this package as long as
// this process lives.
func Address() (string, error) {
	own.mu.Lock()
	defer own.mu.Unlock()
	for {
		if len(own.left) == 0 {
			p, err := Take(blockSize / 2) // of a block some may be in use
			if err != nil {
				return "", err
			}
			own.left = p.Numbers
			kept = append(kept, p.Claims...)
		}
		port := own.left[0]
		if own.left = own.left[1:]; free(port) {
			return fmt.Sprintf("127.0.0.1:%d", port), nil
		}
	}
}

// kept are the claims for the ports that Address gives out: nothing else refers to them, and a file that
// is collected is closed.
var kept []*os.File

// Take finds n free ports. It begins at a random block, so that a port that was in use a
// moment ago is not reused at once.
func Take(n int) (*Ports, error) {
	end := lastPort
	if low, ok := kernelPorts(); ok && low > firstPort+4*blockSize && low < 65536 {
		end = min(low, 61440)
	}
	blocks := (end - firstPort) / blockSize
	none := fmt.Errorf("there are not %d free ports between %d and %d: end other clusters, or take fewer nodes", n, firstPort, end)
	if n > blocks*blockSize {
		return nil, none
	}
	p := &Ports{}
	at := rand.IntN(blocks)
	for range blocks {
		block := firstPort + at*blockSize
		if at++; at == blocks {
			at = 0
		}
		claim, err := claimBlock(block)
		if err == syscall.EADDRINUSE {
			continue
		}
		if err != nil {
			p.Release()
			return nil, fmt.Errorf("claiming ports: %w", err)
		}
		p.Claims = append(p.Claims, claim)
		for port := block; port < block+blockSize && len(p.Numbers) < n; port++ {
			if free(port) {
				p.Numbers = append(p.Numbers, port)
			}
		}
		if len(p.Numbers) == n {
			slices.Sort(p.Numbers) // the search may have wrapped around to the first block
			return p, nil
		}
	}
	p.Release()
	return nil, none
}

func claimBlock(block int) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("@muster-ports-%d", block)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: name}); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func free(port int) bool {
	l, err := net.Listen("tcp4", fmt.Sprintf(":%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// kernelPorts is the first port of the kernel's range for outgoing connections.
func kernelPorts() (low int, ok bool) {
	text, err := wholefile.Limit{Bytes: 100}.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, false
	}
	_, err = fmt.Sscan(strings.TrimSpace(string(text)), &low)
	return low, err == nil
}
