package programs

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// peers returns, for each connected Unix socket of the machine, the inode of the socket
// at the other end, as the kernel reports it (sock_diag(7)).
func peers() (map[uint64]uint64, error) {
	const (
		netlinkSockDiag = 4
		byFamily        = 20  // SOCK_DIAG_BY_FAMILY
		established     = 1   // TCP_ESTABLISHED, as a bit
		showPeer        = 0x4 // UDIAG_SHOW_PEER
	)
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, netlinkSockDiag)
	if err != nil {
		return nil, fmt.Errorf("asking the system for sockets: %w", err)
	}
	defer syscall.Close(fd)
	le := binary.NativeEndian
	request := make([]byte, 16+24)
	le.PutUint32(request[0:], uint32(len(request)))
	le.PutUint16(request[4:], byFamily)
	le.PutUint16(request[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_DUMP)
	request[16] = syscall.AF_UNIX
	le.PutUint32(request[20:], 1<<established)
	le.PutUint32(request[28:], showPeer)
	if err := syscall.Sendto(fd, request, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("asking the system for sockets: %w", err)
	}
	found := map[uint64]uint64{}
	buffer := make([]byte, 256<<10)
	for {
		n, _, err := syscall.Recvfrom(fd, buffer, 0)
		if err != nil {
			return nil, fmt.Errorf("asking the system for sockets: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return nil, fmt.Errorf("what the system says of sockets is not understood: %w", err)
		}
		for _, m := range messages {
			switch m.Header.Type {
			case syscall.NLMSG_DONE:
				return found, nil
			case syscall.NLMSG_ERROR:
				return nil, fmt.Errorf("the system does not tell of sockets")
			case byFamily:
				if inode, peer, ok := peerOf(m.Data); ok {
					found[inode] = peer
				}
			}
		}
	}
}

// peerOf reads one socket: a head of 16 bytes with its inode, and attributes.
func peerOf(b []byte) (inode, peer uint64, ok bool) {
	const unixDiagPeer = 2
	le := binary.NativeEndian
	if len(b) < 16 {
		return 0, 0, false
	}
	inode = uint64(le.Uint32(b[4:]))
	for b = b[16:]; len(b) >= 4; {
		size, kind := int(le.Uint16(b)), le.Uint16(b[2:])
		if size < 4 || size > len(b) {
			break
		}
		if kind == unixDiagPeer && size >= 8 {
			return inode, uint64(le.Uint32(b[4:])), true
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return 0, 0, false
}
