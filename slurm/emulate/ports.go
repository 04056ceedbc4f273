package emulate

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"muster/internal/wholefile"
)

// Ports are taken in blocks below the range from which the kernel chooses ports for outgoing
// connections: a connection could otherwise take a port between the moment it is chosen and the
// moment a daemon listens.
//
// Clusters that start at the same time coordinate through sockets with abstract names, one for each
// block. These need no file, and the kernel frees a name with the last process that holds its
// socket.
const (
	firstPort = 10240
	lastPort  = 32768 // where the kernel's range begins by default
	blockSize = 256
)

// ports are port numbers on which no process listens, with the claims that keep other clusters off
// their blocks.
type ports struct {
	numbers []int
	claims  []*os.File
}

func (p *ports) release() {
	for _, c := range p.claims {
		c.Close()
	}
	p.claims = nil
}

// takePorts finds n free ports. It begins at a random block, so that a port that was in use a
// moment ago is not reused at once.
func takePorts(n int) (*ports, error) {
	end := lastPort
	if low, ok := kernelPorts(); ok && low > firstPort+4*blockSize && low < 65536 {
		end = min(low, 61440)
	}
	blocks := (end - firstPort) / blockSize
	none := fmt.Errorf("there are not %d free ports between %d and %d: end other clusters (muster slurm emulate), or take fewer nodes", n, firstPort, end)
	if n > blocks*blockSize {
		return nil, none
	}
	p := &ports{}
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
			p.release()
			return nil, fmt.Errorf("claiming ports: %w", err)
		}
		p.claims = append(p.claims, claim)
		for port := block; port < block+blockSize && len(p.numbers) < n; port++ {
			if free(port) {
				p.numbers = append(p.numbers, port)
			}
		}
		if len(p.numbers) == n {
			slices.Sort(p.numbers) // the search may have wrapped around to the first block
			return p, nil
		}
	}
	p.release()
	return nil, none
}

func claimBlock(block int) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("@muster-slurm-ports-%d", block)
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
