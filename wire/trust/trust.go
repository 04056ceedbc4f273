// Package trust makes all of Muster's configurations of TLS, so that none of them forgets a check.
//
// Two questions decide whether a side goes on: whether an authority that it believes vouches for the
// other's certificate, and whether the other may do what it is about to do. The first is TLS's, and
// the list of revoked certificates that lies beside the authority: both sides of a connection look it
// up, at each handshake, and whoever listens looks again while connections last (StillGood). The
// second is a Role. One authority vouches for users, nodes and heads, so whoever dials a node for
// what only nodes may have asks for a node. Whoever listens looks at the role when it knows what the
// other wants (wire/identity).
//
// A program that has only a grant knows the authority by the grant, and no list.
//
// The package opens no connection.
package trust

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"muster/internal/wholefile"
	"muster/wire/identity"
)

// Role refuses a certificate that TLS has found to be good, by what its holder is.
type Role func(*x509.Certificate) error

// Node is the role of any node.
func Node(c *x509.Certificate) error {
	if identity.KindOf(c) != identity.Node {
		return fmt.Errorf("the certificate of %q is not that of a node: make one with muster cert --host", c.Subject.CommonName)
	}
	return nil
}

// Anyone is the role of nodes to users' programs: sites may have made the certificates of their nodes
// themselves, without what tells a node from a head. TLS has checked the name of the host.
func Anyone(*x509.Certificate) error { return nil }

// Load reads what a node or a head has: its certificate and key, and the authority that vouches for
// those who connect, with the list beside it. If ca is "", it believes nobody.
func Load(cert, key, ca string) (*tls.Config, error) {
	pair, err := LoadPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of this machine: %w", err)
	}
	config := &tls.Config{}
	if ca != "" {
		if config, err = Believe(ca); err != nil {
			return nil, err
		}
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// ReadAuthority reads the certificates of an authority as text, for those who are told who vouches for
// nodes.
func ReadAuthority(file string) (string, error) {
	text, err := fileLimit.ReadFile(file)
	return string(text), err
}

// Believe reads an authority. The list of revoked certificates beside it counts.
func Believe(ca string) (*tls.Config, error) {
	text, err := fileLimit.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("%w (muster cert makes certificates)", err)
	}
	config, err := BelieveText(string(text), ListBeside(ca))
	if errors.Is(err, errNoCertificate) {
		return nil, fmt.Errorf("there is no certificate in %s", ca)
	}
	return config, err
}

// ListBeside is the file with the list of what an authority has revoked.
func ListBeside(ca string) string { return filepath.Join(filepath.Dir(ca), FileRevoked) }

var errNoCertificate = errors.New("it is no certificate")

// BelieveText is Believe for an authority in PEM form, with the file that lists the revoked
// certificates; "" if there is none.
func BelieveText(authority, list string) (*tls.Config, error) {
	r := &revocations{file: list, now: time.Now}
	pool := x509.NewCertPool()
	for block, rest := pem.Decode([]byte(authority)); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			r.authorities = append(r.authorities, c)
			pool.AddCert(c)
		}
	}
	if len(r.authorities) == 0 {
		return nil, errNoCertificate
	}
	config := &tls.Config{ClientCAs: pool, RootCAs: pool}
	if list == "" {
		return config, nil
	}
	config.VerifyConnection = r.check
	_, err := r.list()
	return config, err
}

// Dial is for connections to one with a role. Of what the caller has it uses the certificate, the
// authority (RootCAs, or else ClientCAs) and the list.
func Dial(own *tls.Config, role Role, protocols ...string) *tls.Config {
	t := own.Clone()
	if t.RootCAs == nil {
		t.RootCAs = own.ClientCAs
	}
	if t.RootCAs == nil {
		t.RootCAs = x509.NewCertPool() // nobody: nil would mean everybody whom the system believes
	}
	t.MinVersion, t.NextProtos = tls.VersionTLS13, protocols
	t.DynamicRecordSizingDisabled = true
	t.VerifyConnection = func(s tls.ConnectionState) error {
		if own.VerifyConnection != nil {
			if err := own.VerifyConnection(s); err != nil {
				return err
			}
		}
		return role(s.PeerCertificates[0])
	}
	return t
}

// Listen is for connections of others, who show a certificate as auth says. Of what the caller has it
// uses the certificate, the authority (ClientCAs) and the list. A list that cannot be used is told to
// log before the caller hears of it.
func Listen(own *tls.Config, auth tls.ClientAuthType, log *slog.Logger, protocols ...string) *tls.Config {
	t := own.Clone()
	t.MinVersion, t.NextProtos, t.ClientAuth = tls.VersionTLS13, protocols, auth
	t.DynamicRecordSizingDisabled = true
	t.SessionTicketsDisabled = true // nothing but what was agreed on may be on its way after a handshake
	if own.VerifyConnection != nil {
		// VerifyConnection refuses everybody, too, while the list cannot be used, but its alert blames
		// the caller's certificate. This one says that the error is here (identity.Refused).
		t.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			broken := ListTrouble(own)
			if broken == nil {
				return nil, nil
			}
			broken.Tell(log)
			return nil, broken
		}
	}
	return t
}

// ListTrouble says that the list of revoked certificates cannot be used now; nil if it can, or if the
// configuration has none.
func ListTrouble(own *tls.Config) (broken *BrokenList) {
	if own != nil && own.VerifyConnection != nil {
		errors.As(own.VerifyConnection(tls.ConnectionState{}), &broken)
	}
	return broken
}

// ListenToBrowsers is for pages. Browsers show no certificate.
func ListenToBrowsers(own *tls.Config) *tls.Config {
	return &tls.Config{Certificates: own.Certificates, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}

// fileLimit is more than a bundle of all public authorities has.
var fileLimit = wholefile.Limit{Bytes: 1 << 20, Remedy: "is it a certificate or key in PEM form?"}

// LoadPair reads a certificate and its key.
func LoadPair(cert, key string) (pair tls.Certificate, err error) {
	certText, err := fileLimit.ReadFile(cert)
	if err != nil {
		return pair, err
	}
	keyText, err := fileLimit.ReadFile(key)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(certText, keyText)
}
