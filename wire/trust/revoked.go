package trust

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"slices"
	"strings"
	"sync"

	"muster/internal/wholefile"
	"muster/wire/identity"
)

// FileRevoked lists the revoked certificates: an X.509 revocation list that the authority signs. It
// lies beside the authority's certificate.
const FileRevoked = "revoked.pem"

var revokedLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it a list that muster cert revoke made?"}

// ReadRevoked reads the serial numbers in a revocation list. One of the authorities must have
// signed it. A file without a list is no empty list: it is being copied, or the disk was full.
func ReadRevoked(file string, authorities []*x509.Certificate) (map[string]bool, error) {
	text, err := revokedLimit.ReadFile(file)
	if err != nil {
		return nil, err
	}
	revoked := map[string]bool{}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("%s is no list of certificates that muster cert revoke made: copy the one that it wrote, or remove the file if nothing was revoked", file)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the list of revoked certificates %s: %w", file, err)
		}
		if !slices.ContainsFunc(authorities, func(a *x509.Certificate) bool { return list.CheckSignatureFrom(a) == nil }) {
			return nil, fmt.Errorf("the list of revoked certificates %s was not signed by the authority beside it: copy the one that muster cert revoke wrote", file)
		}
		for _, entry := range list.RevokedCertificateEntries {
			revoked[Serial(entry.SerialNumber)] = true
		}
		if len(bytes.TrimSpace(rest)) == 0 {
			return revoked, nil
		}
	}
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
	revoked, err := ReadRevoked(r.file, r.authorities)
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
		if revoked[Serial(c.SerialNumber)] {
			return fmt.Errorf("the certificate %s of %s was revoked: its owner needs a new one (muster cert)", Serial(c.SerialNumber), NameOf(c))
		}
	}
	return nil
}

// NameOf returns the name of the folder that a certificate was made for.
func NameOf(c *x509.Certificate) string {
	kind := map[identity.Kind]string{identity.Node: "node-", identity.Head: "head-", identity.User: "user-"}[identity.KindOf(c)]
	return kind + strings.ReplaceAll(c.Subject.CommonName, ":", "_")
}

// Serial is a serial number as lists and people write it.
func Serial(n *big.Int) string { return fmt.Sprintf("%x", n) }
