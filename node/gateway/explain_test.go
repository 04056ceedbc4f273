package gateway

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/wire/client"
	"muster/wire/trust"
)

// presenting is a port where whoever connects meets a machine with a configuration of TLS.
func presenting(t *testing.T, config *tls.Config) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			plain, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer plain.Close()
				_ = tls.Server(plain, config).Handshake()
				_, _ = io.Copy(io.Discard, plain) // the caller reads why before the connection is closed
			}()
		}
	}()
	return listener.Addr().String()
}

// Whoever calls a machine whose certificate does not do is told which names it has, or whose it is,
// and what to do, and not what Go says of it.
func TestWhatIsWrongWithANodesCertificate(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	a, _, err := OpenAuthority(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	user, err := a.User("alice", 1)
	if err != nil {
		t.Fatal(err)
	}
	own, err := client.LoadTLS(user)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := OpenAuthority(t.TempDir(), now)
	if err != nil {
		t.Fatal(err)
	}
	past, _, err := OpenAuthority(dir, now.AddDate(0, 0, -40))
	if err != nil {
		t.Fatal(err)
	}
	node := func(a *Authority, hosts ...string) (cert, key string) {
		t.Helper()
		folder, err := a.Node(hosts, 30)
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(folder, FileNode), filepath.Join(folder, FileNodeKey)
	}
	head, err := a.Head([]string{"head1"}, 30)
	if err != nil {
		t.Fatal(err)
	}
	const foreign = "the certificate of 127.0.0.1 was made by another authority than the one that is believed here (ca.pem in the folder of --tls-dir, or tls.ca): use a folder that muster cert made with the authority of 127.0.0.1"
	for _, c := range []struct {
		name string
		pair func() (cert, key string)
		want string
	}{
		{"another name", func() (string, string) { return node(a, "gpu1", "10.0.0.7") },
			"the certificate of 127.0.0.1 is for gpu1, 10.0.0.7: use one of these names, or make a certificate for this one with muster cert DIR --host 127.0.0.1"},
		{"many names", func() (string, string) {
			return node(a, "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9")
		}, "is for a0, a1, a2, a3, a4, a5, a6, a7, 2 more: use"},
		{"a head of another name", func() (string, string) {
			return filepath.Join(head, FileHead), filepath.Join(head, FileHeadKey)
		}, "is for head1: use one of these names, or make a certificate for this one with muster cert DIR --head 127.0.0.1"},
		{"another authority", func() (string, string) { return node(other, "127.0.0.1") }, foreign},
		{"another authority and name", func() (string, string) { return node(other, "gpu1") }, foreign},
		{"expired", func() (string, string) { return node(past, "127.0.0.1") },
			"and this machine's clock says otherwise: set the clock, or make a new certificate with muster cert DIR --host 127.0.0.1"},
		{"a user's", func() (string, string) {
			return filepath.Join(user, client.FileUser), filepath.Join(user, client.FileUserKey)
		}, "the certificate of 127.0.0.1 is not one for a machine that is called, as a user's is not: give it the folder of a node or a head"},
	} {
		cert, key := c.pair()
		pair, err := trust.LoadPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		address := presenting(t, &tls.Config{Certificates: []tls.Certificate{pair}})
		err = client.Check(t.Context(), client.Secure(address, own, ""))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "x509") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
