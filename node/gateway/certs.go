package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muster/internal/wholefile"
	"muster/wire/client"
	"muster/wire/identity"
	"muster/wire/trust"
)

// The files of an authority, of a node and of a head. The files of a user are named in package
// client.
const (
	FileCAKey   = "ca-key.pem"
	FileNode    = "node.pem"
	FileNodeKey = "node-key.pem"
	FileHead    = "head.pem"
	FileHeadKey = "head-key.pem"
)

// LoadHead reads the folder that muster cert made for a head; nil without one.
func LoadHead(dir string) (*tls.Config, error) {
	if dir == "" {
		return nil, nil
	}
	config, err := trust.Load(filepath.Join(dir, FileHead), filepath.Join(dir, FileHeadKey), filepath.Join(dir, client.FileCA))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a head's folder: give the one that muster cert --head made as head-HOST (%w)", dir, err)
	}
	return config, err
}

// LoadDir reads the folder that muster cert made for a node.
func LoadDir(dir string) (*tls.Config, error) {
	return trust.Load(filepath.Join(dir, FileNode), filepath.Join(dir, FileNodeKey), filepath.Join(dir, client.FileCA))
}

// Authority signs the certificates of nodes, heads and users.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  any
	now  time.Time
}

// authorityDays is how long an authority is valid: ten years.
const authorityDays = 3653

// OpenAuthority opens the authority in a folder, or creates one if neither of its files exists.
func OpenAuthority(dir string, now time.Time) (a *Authority, made bool, err error) {
	cert, key := filepath.Join(dir, client.FileCA), filepath.Join(dir, FileCAKey)
	pair, err := trust.LoadPair(cert, key)
	if err == nil {
		return &Authority{dir, pair.Leaf, pair.PrivateKey, now}, false, nil
	}
	for _, file := range []string{cert, key} {
		if _, there := os.Lstat(file); !errors.Is(there, fs.ErrNotExist) {
			return nil, false, fmt.Errorf("the authority in %s: %w", dir, err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, err
	}
	template := certificate("Muster authority", authorityDays, now)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	a = &Authority{dir: dir, now: now}
	if err := a.issue(template, cert, key); err != nil {
		return nil, false, err
	}
	a, _, err = OpenAuthority(dir, now)
	return a, true, err
}

// ExistingAuthority opens an authority, and makes none.
func ExistingAuthority(dir string, now time.Time) (*Authority, error) {
	if _, err := os.Stat(filepath.Join(dir, FileCAKey)); err != nil {
		return nil, fmt.Errorf("there is no authority in %s: give the folder that muster cert made (%w)", dir, err)
	}
	authority, _, err := OpenAuthority(dir, now)
	return authority, err
}

// Node makes a folder for a node with these names or addresses. The node also authenticates with
// its certificate at a head and at other nodes.
func (a *Authority) Node(hosts []string, days int) (folder string, err error) {
	template, err := a.machine(hosts, identity.Node, days)
	if err != nil {
		return "", fmt.Errorf("a node's certificate: %w", err)
	}
	return a.folder("node-"+strings.ReplaceAll(hosts[0], ":", "_"), template, FileNode, FileNodeKey)
}

// Head makes a folder for a cluster's head with these names or addresses. If there are several heads, each
// also authenticates with its certificate at the others.
func (a *Authority) Head(hosts []string, days int) (folder string, err error) {
	template, err := a.machine(hosts, identity.Head, days)
	if err != nil {
		return "", fmt.Errorf("a head's certificate: %w", err)
	}
	return a.folder("head-"+strings.ReplaceAll(hosts[0], ":", "_"), template, FileHead, FileHeadKey)
}

// machine returns the certificate template of a machine that others connect to.
func (a *Authority) machine(hosts []string, kind identity.Kind, days int) (*x509.Certificate, error) {
	if len(hosts) == 0 {
		return nil, errors.New("it needs a name or an address")
	}
	template := certificate(hosts[0], days, a.now)
	template.Subject.OrganizationalUnit = []string{string(kind)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if goodName(host) {
			template.DNSNames = append(template.DNSNames, host)
		} else {
			return nil, fmt.Errorf("%q is no name or address of a machine", host)
		}
	}
	return template, nil
}

// User makes a folder for a user. Nodes know the user by this name.
func (a *Authority) User(name string, days int) (folder string, err error) {
	if !goodName(name) {
		return "", fmt.Errorf("%q cannot be a user's name here: use letters, digits and . _ - @", name)
	}
	template := certificate(name, days, a.now)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.folder("user-"+name, template, client.FileUser, client.FileUserKey)
}

// goodName says whether a name can be part of a path and of a certificate.
func goodName(name string) bool {
	if name == "" || len(name) > 64 || name[0] == '.' || name[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-@", r))
	})
}

// folder makes a folder with all files that one side needs.
func (a *Authority) folder(name string, template *x509.Certificate, cert, key string) (string, error) {
	folder := filepath.Join(a.dir, name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("%s is there already: remove it to make a new one", folder)
		}
		return "", err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if err := a.issue(template, filepath.Join(folder, cert), filepath.Join(folder, key)); err != nil {
		return "", err
	}
	list, err := os.ReadFile(filepath.Join(a.dir, trust.FileRevoked))
	if err == nil && cert != client.FileUser {
		err = wholefile.Replace(filepath.Join(folder, trust.FileRevoked), list, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return folder, writePEM(filepath.Join(folder, client.FileCA), "CERTIFICATE", a.cert.Raw)
}

func certificate(name string, days int, now time.Time) *x509.Certificate {
	// Clocks differ, so it is valid from an hour before it was made.
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 0, days)}
}

// issue makes a key and its certificate. An authority that has none signs its own.
func (a *Authority) issue(template *x509.Certificate, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return err
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(keyFile, "PRIVATE KEY", secret); err != nil {
		return err
	}
	if err := writePEM(certFile, "CERTIFICATE", cert); err != nil || a.cert == nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(a.dir, issuedFolder), 0o700); err != nil {
		return err
	}
	return writePEM(filepath.Join(a.dir, issuedFolder, trust.Serial(template.SerialNumber)+".pem"), "CERTIFICATE", cert)
}

// writePEM writes a new file that only its owner can read. It never overwrites one.
func writePEM(file, kind string, der []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Close())
}
