package door

import (
	"net"
	"strings"
	"testing"
)

func TestPortTrouble(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	for _, c := range []struct{ address, want string }{
		{address, "another program has " + address + " already: stop it, or give another port"},
		{"99999", `"99999" is no address (listen tcp: address 99999: missing port in address): write HOST:PORT, as 127.0.0.1:9420, with a port up to 65535`},
		{"127.0.0.1:99999", `"127.0.0.1:99999" is no address (listen tcp: address 99999: invalid port): write HOST:PORT`},
		{"192.0.2.1:9420", "192.0.2.1:9420 is no address of this machine: give one that is, or leave out the host for all, as :9420"},
	} {
		l, err := net.Listen("tcp", c.address)
		if err == nil {
			l.Close()
			t.Errorf("%s can be opened", c.address)
			continue
		}
		if got := PortTrouble(c.address, err); !strings.HasPrefix(got.Error(), c.want) {
			t.Errorf("got %v\nwant %s", got, c.want)
		}
	}
}
