package gateway

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/wholefile"
	"muster/wire/identity"
)

// FileRevoked lists the revoked certificates: an X.509 revocation list that the authority signs. It
// lies beside ca.pem, in the folders of nodes and heads.
const FileRevoked = "revoked.pem"

// issuedFolder has a copy of each certificate that an authority issued, by serial number: the
// folders themselves are given away.
const issuedFolder = "issued"

var revokedLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it a list that muster cert revoke made?"}

// Issued is a certificate that an authority issued.
type Issued struct {
	Name    string    `json:"name"` // of its folder: user-alice, node-gpu1
	Serial  string    `json:"serial"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"`
	Revoked bool      `json:"revoked"`
	number  *big.Int
}

// Worth says in a word what the certificate is worth.
func (c *Issued) Worth(now time.Time) string {
	switch {
	case c.Revoked:
		return "revoked"
	case now.After(c.Until):
		return "expired"
	}
	return "good"
}

// List returns the certificates that the authority issued, by name and then by date.
func (a *Authority) List() ([]Issued, error) {
	files, err := filepath.Glob(filepath.Join(a.dir, "*", "*.pem"))
	if err != nil {
		return nil, err
	}
	revoked, err := readRevoked(filepath.Join(a.dir, FileRevoked), []*x509.Certificate{a.cert})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	list := []Issued{} // JSON has an empty list, never null
	seen := map[string]bool{serial(a.cert.SerialNumber): true}
	for _, file := range files {
		c := readCertificate(file)
		if c == nil || seen[serial(c.SerialNumber)] || c.CheckSignatureFrom(a.cert) != nil {
			continue // a key, or a certificate of another authority
		}
		number := serial(c.SerialNumber)
		seen[number] = true
		list = append(list, Issued{Name: nameOf(c), Serial: number, From: c.NotBefore, Until: c.NotAfter, Revoked: revoked[number], number: c.SerialNumber})
	}
	slices.SortFunc(list, func(x, y Issued) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), x.From.Compare(y.From), cmp.Compare(x.Serial, y.Serial))
	})
	return list, nil
}

// Revoke revokes the certificates with one of the names or serial numbers. It returns them, and the
// files that it wrote: the authority's own list, and those in the folders that are still here.
func (a *Authority) Revoke(names []string) (revoked []Issued, written []string, err error) {
	list, err := a.List()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		known := false
		for i := range list {
			if list[i].Name == name || list[i].Serial == name {
				known, list[i].Revoked = true, true
				revoked = append(revoked, list[i])
			}
		}
		if !known {
			return nil, nil, fmt.Errorf("the authority in %s made no certificate %q: muster cert list %s shows what it made", a.dir, name, a.dir)
		}
	}
	text, err := a.signList(list)
	if err != nil {
		return nil, nil, err
	}
	written = []string{filepath.Join(a.dir, FileRevoked)}
	for _, kind := range []string{"node-*", "head-*"} {
		folders, _ := filepath.Glob(filepath.Join(a.dir, kind))
		for _, folder := range folders {
			written = append(written, filepath.Join(folder, FileRevoked))
		}
	}
	for _, file := range written {
		if err := replaceFile(file, text); err != nil {
			return nil, nil, err
		}
	}
	return revoked, written, nil
}

// signList returns the signed list of the revoked certificates.
func (a *Authority) signList(list []Issued) ([]byte, error) {
	signer, ok := a.key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key of the authority in %s cannot sign", a.dir)
	}
	template := &x509.RevocationList{Number: big.NewInt(a.now.UnixNano()), ThisUpdate: a.now, NextUpdate: a.now.AddDate(0, 0, authorityDays)}
	for _, c := range list {
		if c.Revoked {
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.number, RevocationTime: a.now})
		}
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, a.cert, signer)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), nil
}

// replaceFile writes a file that no reader sees half written.
func replaceFile(file string, text []byte) error {
	next := file + ".new"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// readCertificate reads a certificate; nil if the file has none.
func readCertificate(file string) *x509.Certificate {
	text, err := revokedLimit.ReadFile(file)
	if err != nil {
		return nil
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return c
}

// readRevoked reads the serial numbers in a revocation list. One of the authorities must have
// signed it.
func readRevoked(file string, authorities []*x509.Certificate) (map[string]bool, error) {
	text, err := revokedLimit.ReadFile(file)
	if err != nil {
		return nil, err
	}
	revoked := map[string]bool{}
	for rest := text; len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("%s is no list of certificates that muster cert revoke made", file)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the list of revoked certificates %s: %w", file, err)
		}
		if !slices.ContainsFunc(authorities, func(a *x509.Certificate) bool { return list.CheckSignatureFrom(a) == nil }) {
			return nil, fmt.Errorf("the list of revoked certificates %s was not signed by the authority beside it: copy the one that muster cert revoke wrote", file)
		}
		for _, entry := range list.RevokedCertificateEntries {
			revoked[serial(entry.SerialNumber)] = true
		}
	}
	return revoked, nil
}

// revocations refuses peers with a revoked certificate. It reads the list again when the file has
// changed, so nothing has to be restarted. While the list cannot be read all peers are refused.
type revocations struct {
	file        string
	authorities []*x509.Certificate

	mu      sync.Mutex
	seen    fs.FileInfo // of the list that was read; nil if there was none
	revoked map[string]bool
}

// newRevocations uses the list beside an authority's certificate.
func newRevocations(ca string) (*revocations, error) {
	text, err := revokedLimit.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	r := &revocations{file: filepath.Join(filepath.Dir(ca), FileRevoked)}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			r.authorities = append(r.authorities, c)
		}
	}
	_, err = r.list()
	return r, err
}

// list returns the serial numbers that are revoked.
func (r *revocations) list() (map[string]bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		r.seen, r.revoked = nil, nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.seen != nil && os.SameFile(r.seen, info) && r.seen.ModTime().Equal(info.ModTime()) && r.seen.Size() == info.Size() {
		return r.revoked, nil
	}
	revoked, err := readRevoked(r.file, r.authorities)
	if err != nil {
		return nil, err
	}
	r.seen, r.revoked = info, revoked
	return revoked, nil
}

// check is meant for tls.Config.VerifyConnection.
func (r *revocations) check(s tls.ConnectionState) error {
	revoked, err := r.list()
	if err != nil {
		return err
	}
	for _, c := range s.PeerCertificates {
		if revoked[serial(c.SerialNumber)] {
			return fmt.Errorf("the certificate %s of %s was revoked: its owner needs a new one (muster cert)", serial(c.SerialNumber), nameOf(c))
		}
	}
	return nil
}

// nameOf returns the name of the folder that a certificate was made for.
func nameOf(c *x509.Certificate) string {
	kind := map[identity.Kind]string{identity.Node: "node-", identity.Head: "head-", identity.User: "user-"}[identity.KindOf(c)]
	return kind + strings.ReplaceAll(c.Subject.CommonName, ":", "_")
}

func serial(n *big.Int) string { return fmt.Sprintf("%x", n) }
