package programs

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"muster/wire/status"
)

// AddArguments adds to the programs of this machine the arguments that they were given. A process
// of another name has the number by chance: its program is on another machine, or has ended.
func AddArguments(s *status.Node) {
	for i := range s.Clients {
		c := &s.Clients[i]
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Pid))
		if err != nil || c.Guest || isElsewhere(c.Address) {
			continue
		}
		words := strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
		if filepath.Base(words[0]) == filepath.Base(c.Program) {
			c.Arguments = words[1:]
		}
	}
}

// isElsewhere says whether a program that came from an address is on another machine.
func isElsewhere(address string) bool {
	from, err := netip.ParseAddrPort(address)
	return err == nil && !from.Addr().IsLoopback()
}
