package trust

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/wholefile"
	"muster/wire/identity"
)

// FileRevoked lists the revoked certificates: an X.509 revocation list that the authority signs. It
// lies beside the authority's certificate.
const FileRevoked = "revoked.pem"

// seenSuffix is added to a list's name for the mark that there is one, with the newest number of each
// authority's list. Whoever has read a list leaves it, so that a list that is lost, or left out when a
// folder is copied, or replaced by an older one does not readmit those whom it named, also after a restart.
const seenSuffix = ".seen"

var revokedLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it a list that muster cert revoke made?"}

// List says which certificates were revoked, and by whom: an authority revokes its own only. The zero
// value has none.
type List struct {
	signers map[entry][]*x509.Certificate
	numbers numbers
}

// numbers are those of lists, by the key of the authority that has signed them. A newer list has a
// higher one.
type numbers map[string]*big.Int

// raise notes a number unless there is a higher one.
func (n numbers) raise(key string, number *big.Int) {
	if n[key] == nil || n[key].Cmp(number) < 0 {
		n[key] = number
	}
}

// Number is the highest of the list; nil if there is none.
func (l List) Number() (highest *big.Int) {
	for _, n := range l.numbers {
		if highest == nil || n.Cmp(highest) > 0 {
			highest = n
		}
	}
	return highest
}

// keyOf tells the keys of authorities apart: one that was renewed has the same.
func keyOf(authority *x509.Certificate) string {
	return fmt.Sprintf("%x", sha256.Sum256(authority.RawSubjectPublicKeyInfo))
}

// entry is a certificate in a list.
type entry struct{ issuer, serial string }

// Has says whether a certificate is in the list. Authorities may have the same name, as those of
// muster cert do, so the one that has signed the list must also have signed the certificate.
func (l List) Has(c *x509.Certificate) bool {
	return slices.ContainsFunc(l.signers[entry{string(c.RawIssuer), Serial(c.SerialNumber)}], func(signer *x509.Certificate) bool {
		return signer.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
	})
}

// ReadRevoked reads a revocation list. One of the authorities must have signed it. A file without a
// list is no empty list: it is being copied, or the disk was full.
func ReadRevoked(file string, authorities []*x509.Certificate) (List, error) {
	text, err := revokedLimit.ReadFile(file)
	if err != nil {
		return List{}, err
	}
	all := List{map[entry][]*x509.Certificate{}, numbers{}}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return List{}, fmt.Errorf("%s is no list of certificates that muster cert revoke made: %s", file, mendList)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return List{}, fmt.Errorf("%s is no list of certificates that muster cert revoke made (%w): %s", file, err, mendList)
		}
		signers := slices.DeleteFunc(slices.Clone(authorities), func(a *x509.Certificate) bool { return list.CheckSignatureFrom(a) != nil })
		if len(signers) == 0 { // several are one authority that was renewed
			return List{}, fmt.Errorf("the list of revoked certificates %s was not signed by the authority beside it: %s", file, mendList)
		}
		number := list.Number
		if number == nil { // a list of other tools: its date stands for it
			number = big.NewInt(list.ThisUpdate.UnixNano())
		}
		for _, a := range signers {
			all.numbers.raise(keyOf(a), number)
			for _, one := range list.RevokedCertificateEntries {
				key := entry{string(a.RawSubject), Serial(one.SerialNumber)}
				all.signers[key] = append(all.signers[key], a)
			}
		}
		if len(bytes.TrimSpace(rest)) == 0 {
			return all, nil
		}
	}
}

const mendList = "copy the one that muster cert revoke wrote, or remove the file if nothing was revoked"

// Revoked says that a certificate was revoked.
type Revoked struct {
	Certificate *x509.Certificate
	chain       []*x509.Certificate // with the authorities that vouch for it
}

func (r *Revoked) Error() string {
	return fmt.Sprintf("the certificate %s of %s was revoked: its owner needs a new one (muster cert)", Serial(r.Certificate.SerialNumber), NameOf(r.Certificate))
}

// BrokenList says that a list of revoked certificates cannot be used, so that nobody is let in. It is
// no fault of those who connect. The same value is returned until the file changes or the reason does.
type BrokenList struct {
	File string
	Err  error

	found fs.FileInfo // the file as it was read; nil if it could not be, which may pass by itself
	told  atomic.Bool
}

func (b *BrokenList) Error() string { return b.Err.Error() }
func (b *BrokenList) Unwrap() error { return b.Err }

// Tell logs what is wrong, once for each state of the file: anyone could fill the log by connecting.
func (b *BrokenList) Tell(log *slog.Logger) {
	if !b.told.Swap(true) {
		log.Error("nobody who uses TLS is let in, since the list of revoked certificates cannot be used: an administrator has to mend it", "file", b.File, "error", b.Err)
	}
}

// revocations refuses peers with a revoked certificate. It reads the list again when the file has
// changed, so nothing has to be restarted. While the list cannot be read all peers are refused.
type revocations struct {
	file        string
	authorities []*x509.Certificate
	now         func() time.Time

	mu      sync.Mutex
	seen    fs.FileInfo // of the list that was read; nil if there was none
	revoked List
	newest  numbers     // of all lists that were read
	broken  *BrokenList // nil if the list can be used
	tried   time.Time   // when a broken list was last read
}

// brokenFor is for how long a broken list is not read again unless the file looks different. A file
// that is mended while it is being written may look as it did when it was broken.
const brokenFor = time.Second

// list returns which certificates are revoked. An error is a *BrokenList.
func (r *revocations) list() (List, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (r.seen != nil || exists(r.file+seenSuffix)):
		return List{}, r.trouble(nil, fmt.Errorf("the list of revoked certificates %s is missing, and there was one: copy the one that muster cert revoke wrote; if nothing is to be revoked any more, remove %s too, and start again", r.file, r.file+seenSuffix))
	case errors.Is(err, fs.ErrNotExist):
		r.broken = nil
		return List{}, nil
	case err != nil:
		return List{}, r.trouble(nil, err)
	case r.broken != nil && same(r.broken.found, info) && r.now().Sub(r.tried) < brokenFor:
		return List{}, r.broken
	case r.broken == nil && same(r.seen, info):
		return r.revoked, nil
	}
	r.tried = r.now()
	revoked, err := ReadRevoked(r.file, r.authorities)
	var unread *fs.PathError
	switch {
	case errors.As(err, &unread):
		return List{}, r.trouble(nil, err)
	case err != nil:
		return List{}, r.trouble(info, err)
	}
	if err := r.notOlder(revoked.numbers); err != nil {
		return List{}, r.trouble(info, err)
	}
	r.seen, r.revoked, r.broken = info, revoked, nil
	return revoked, nil
}

// notOlder refuses a list if a newer one of an authority that is believed was read before, by this
// process or by one that left a mark, and otherwise leaves a mark itself.
func (r *revocations) notOlder(is numbers) error {
	mark, known := r.file+seenSuffix, numbers{}
	text, err := revokedLimit.ReadFile(mark)
	marked := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "newest" {
			continue // the words for people
		}
		var number *big.Int
		if len(fields) == 3 {
			number, _ = new(big.Int).SetString(fields[2], 10)
		}
		if number == nil {
			return fmt.Errorf("%s is not as Muster wrote it (%q): remove it if %s is the newest list that muster cert revoke wrote", mark, strings.TrimSpace(line), r.file)
		}
		known.raise(fields[1], number)
	}
	for key, number := range r.newest {
		known.raise(key, number)
	}
	for _, a := range r.authorities {
		if key := keyOf(a); known[key] != nil && (is[key] == nil || is[key].Cmp(known[key]) < 0) {
			return fmt.Errorf("the list of revoked certificates %s is older than one that was read before: copy the newest that muster cert revoke wrote; if the older one is to count, remove %s, and start again", r.file, mark)
		}
	}
	changed := !marked
	for key, number := range is {
		changed = changed || known[key] == nil || known[key].Cmp(number) < 0
		known.raise(key, number)
	}
	r.newest = known
	if changed {
		next := fmt.Appendf(nil, "There is a list of revoked certificates, %s: without it, or with an older one, nobody is let in.\n", filepath.Base(r.file))
		for _, key := range slices.Sorted(maps.Keys(known)) {
			next = fmt.Appendf(next, "newest %s %v\n", key, known[key])
		}
		// Where this process may not write, it alone remembers.
		_ = wholefile.Replace(mark, next, 0o644)
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// trouble is the error of a list that cannot be used. A file that could not be read is tried again
// each time, and the error is the former one as long as file and error are the same.
func (r *revocations) trouble(found fs.FileInfo, err error) error {
	b := r.broken
	unchanged := b != nil && b.Error() == err.Error() && (b.found == nil && found == nil || found != nil && same(b.found, found))
	if !unchanged {
		r.broken = &BrokenList{File: r.file, Err: err, found: found}
	}
	return r.broken
}

// same says whether a file was not changed between two looks; a is nil if there was no first one.
func same(a, b fs.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// check is meant for tls.Config.VerifyConnection. An error is a *Revoked or a *BrokenList.
func (r *revocations) check(s tls.ConnectionState) error {
	revoked, err := r.list()
	if err != nil {
		return err
	}
	chain := Vouched(s)
	for i, c := range chain {
		if revoked.Has(c) {
			return &Revoked{c, chain[i+1:]}
		}
	}
	return nil
}

// Vouched are the certificates of a connection that count: the other side's own, and those of the
// authorities that vouch for it. Whatever else it has sent, anybody could have made.
func Vouched(s tls.ConnectionState) (chain []*x509.Certificate) {
	for _, verified := range s.VerifiedChains {
		for _, c := range verified {
			if !slices.ContainsFunc(chain, c.Equal) {
				chain = append(chain, c)
			}
		}
	}
	if chain == nil && len(s.PeerCertificates) > 0 {
		return s.PeerCertificates[:1]
	}
	return chain
}

// StillGood looks again at the certificates that counted when a connection began (Vouched). The error
// is a *Revoked if one of them was revoked since. A list that cannot be used meanwhile is a
// *BrokenList: it is no reason to end connections.
func StillGood(own *tls.Config, vouched []*x509.Certificate) error {
	if own == nil || own.VerifyConnection == nil || len(vouched) == 0 {
		return nil
	}
	return own.VerifyConnection(tls.ConnectionState{PeerCertificates: vouched[:1], VerifiedChains: [][]*x509.Certificate{vouched}})
}

// NameOf returns the name of the folder that a certificate was made for.
func NameOf(c *x509.Certificate) string {
	kind := map[identity.Kind]string{identity.Node: "node-", identity.Head: "head-", identity.User: "user-"}[identity.KindOf(c)]
	return Quoted(kind + strings.ReplaceAll(c.Subject.CommonName, ":", "_"))
}

// maxQuoted is how many characters of a name in a certificate people are shown.
const maxQuoted = 256

// Quoted is a name of a certificate as people may be shown it: in quotes if it is longer than a name
// should be, or has what a terminal would obey.
func Quoted(name string) string {
	clipped := fmt.Sprintf("%.*s", maxQuoted, name)
	if quoted := strconv.Quote(clipped); clipped != name || quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// Serial is a serial number as lists and people write it.
func Serial(n *big.Int) string { return fmt.Sprintf("%x", n) }
