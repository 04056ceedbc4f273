package door

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	random "math/rand/v2"
	"net"
	"testing"
	"time"
)

// tlsPair is a connection with TLS.
func tlsPair(t *testing.T) (client, server *tls.Conn) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	near, far := eagerPair(t)
	server = tls.Server(near, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true})
	client = tls.Client(far, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// sealedPair is such a connection that was sealed. Its sides are connected by what the test makes of
// them, if it likes.
func sealedPair(t *testing.T) (client, server *Sealed) {
	t.Helper()
	near, far := tlsPair(t)
	client, err := Seal(near, true)
	if err != nil || client == nil {
		t.Fatal("no AES-GCM here?", err)
	}
	if server, err = Seal(far, false); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// What is written arrives, in both directions, however it is cut, and over a change of keys.
func TestSealed(t *testing.T) {
	client, server := sealedPair(t)
	for _, h := range []*half{&client.out, &server.in} {
		h.number = recordsPerKey - 3
	}
	seed := random.Uint64()
	for _, way := range [][2]*Sealed{{client, server}, {server, client}} {
		r := random.New(random.NewPCG(seed, 0))
		var want []byte
		var writes [][2][]byte
		for range 12 {
			head, b := make([]byte, 1+r.IntN(shortMost)), make([]byte, 1+r.IntN([]int{10, 5000, 3 * sealedMost}[r.IntN(3)]))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			want = append(append(want, head...), b...)
			writes = append(writes, [2][]byte{head, b})
		}
		failed := make(chan error, 1)
		go func() {
			var err error
			for i, w := range writes {
				if i%2 == 0 {
					err = errors.Join(err, way[0].WriteBoth(w[0], w[1]))
					continue
				}
				for _, b := range w {
					_, wrong := way[0].Write(b)
					err = errors.Join(err, wrong)
				}
			}
			failed <- err
		}()
		got := make([]byte, 0, len(want))
		for len(got) < len(want) {
			b := make([]byte, 1+r.IntN(2*sealedMost))
			n, err := way[1].Read(b[:min(len(b), len(want)-len(got))])
			if err != nil {
				t.Fatalf("seed %d: after %d bytes: %v", seed, len(got), err)
			}
			got = append(got, b[:n]...)
		}
		if err := <-failed; err != nil || !bytes.Equal(got, want) {
			t.Errorf("seed %d: the bytes are others: %v", seed, err)
		}
	}
	if client.out.number >= recordsPerKey-3 {
		t.Error("the key was not changed")
	}
	client.Close()
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
}

// recorder keeps what is written.
type recorder struct {
	net.Conn
	wrote [][]byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.wrote = append(r.wrote, bytes.Clone(b))
	return len(b), nil
}

// Whoever changes the bytes on the way is noticed.
func TestSealedIsNotChanged(t *testing.T) {
	for name, change := range map[string]func([][]byte) [][]byte{
		"a bit":        func(r [][]byte) [][]byte { r[1][9] ^= 1; return r },
		"the length":   func(r [][]byte) [][]byte { r[1][0]--; return r },
		"no length":    func(r [][]byte) [][]byte { clear(r[1][:4]); return r },
		"a long one":   func(r [][]byte) [][]byte { r[1][3] = 1; return r },
		"the tag":      func(r [][]byte) [][]byte { r[1][len(r[1])-1] ^= 128; return r },
		"left out":     func(r [][]byte) [][]byte { return r[:1:1] },
		"repeated":     func(r [][]byte) [][]byte { return [][]byte{r[0], r[0]} },
		"out of order": func(r [][]byte) [][]byte { return [][]byte{r[0], r[2]} },
		"cut off":      func(r [][]byte) [][]byte { return [][]byte{r[0], r[1][:20]} },
	} {
		t.Run(name, func(t *testing.T) {
			client, server := sealedPair(t)
			under := client.Conn
			r := &recorder{Conn: under}
			client.Conn = r
			for _, text := range []string{"first of all", "second of all", "third of them"} {
				if _, err := client.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			for _, b := range change(r.wrote) {
				if _, err := under.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			under.Close()
			b := make([]byte, 100)
			if n, err := server.Read(b); err != nil || string(b[:n]) != "first of all" {
				t.Fatalf("%q, %v", b[:n], err)
			}
			want := ErrUnsealed
			switch name {
			case "left out":
				want = io.EOF
			case "cut off":
				want = io.ErrUnexpectedEOF
			}
			if n, err := server.Read(b); n != 0 || !errors.Is(err, want) {
				t.Errorf("%q, %v", b[:n], err)
			}
			if n, err := server.Read(b); n != 0 || !errors.Is(err, want) { // what comes after it does not count either
				t.Errorf("then %q, %v", b[:n], err)
			}
		})
	}
}

// Nobody who lacks the secrets of the connection can read or write it, nor can the other direction.
func TestSealedKeysDiffer(t *testing.T) {
	client, server := sealedPair(t)
	other, _ := sealedPair(t)
	seen := map[string]bool{}
	for _, h := range []*half{&client.out, &client.in, &other.out, &other.in} {
		seen[string(h.aead.Seal(nil, make([]byte, 12), make([]byte, 16), nil))] = true
	}
	if len(seen) != 4 {
		t.Errorf("4 directions have %d keys", len(seen))
	}
	if _, err := client.Write([]byte("to the server")); err != nil {
		t.Fatal(err)
	}
	server.in, server.out = server.out, server.in
	if _, err := server.Read(make([]byte, 100)); !errors.Is(err, ErrUnsealed) {
		t.Error(err)
	}
}
