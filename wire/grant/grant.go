// Package grant is a job's right to use GPUs, as a document: which devices, on which nodes, with
// how much of their memory, how firmly the job's programs are bound to them, and a credential by which
// nodes recognise the programs. The head, Slurm's driver and a person issue the same document, and
// nodes enforce it without knowing who did.
//
// The credential is 32 random bytes. Every program that has it may use the devices, so the document
// must be kept secret like a key. A node that lends to the one where the programs run is shown another
// credential, made of it and of the lender's name, which is of no use elsewhere. Nodes keep only its hash (Hash), so a user who reads a node's files
// or lists its grants cannot use one. The credential ends with the grant: a node that was told to
// revoke the grant refuses it from then on.
//
// Devices of other nodes are reached over TLS. The document carries the certificate of the
// authority that vouches for those nodes (Authority), and not the fingerprint of each node's
// certificate: the job then checks a lender as every other program does, by its name and an
// authority, and recognises a lender whose certificate is renewed while the job runs or waits. The
// job needs no certificate of its own: the credential identifies it. The credential is sent only
// after the lender has shown its certificate.
//
// The package knows no node, no head and no connection.
package grant

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"muster/internal/strictjson"
	"muster/internal/units"
	"muster/model"
)

// Limits of a document.
const (
	MaxBytes     = 256 << 10 // of the document, if JSON escapes everything that it can
	MaxDevices   = 16        // as many as a program's device addresses have room for
	MaxName      = 255       // bytes of an ID, or of the name of a user or node
	maxAuthority = 32 << 10
	maxDevice    = 1 << 16 // a device's number
	maxMemory    = model.AllBeyond
)

// AllDevices, as Limit, says that all devices of a grant may be used at a time.
const AllDevices = -1

// Grant is what a job may use.
type Grant struct {
	// ID names the grant on all nodes; the head's are "job.attempt.part".
	ID string `json:"id"`
	// User is the name of the user whose programs may use it.
	User string `json:"user"`
	// Secret is the credential.
	Secret Credential `json:"secret"`
	// Devices are what the job's programs see as devices 0, 1 and so on.
	Devices []Device `json:"devices"`
	// Limit is how many of the devices may be used at a time: AllDevices for all,
	// 0 while the job is suspended.
	Limit int `json:"limit"`
	// Turns is the class and weight of the job's programs.
	model.Turns
	// Authority vouches for the nodes that have an Address: certificates in PEM form.
	Authority string `json:"authority,omitempty"`
}

// Device is one GPU of a grant, or a share of one: the home of the programs that use it. There they have
// what Memory says whatever others do. Reach and Beyond say what else they may have while it is free.
type Device struct {
	Node    string      `json:"node"`              // the name of the node that has it
	Address string      `json:"address,omitempty"` // HOST:PORT of that node's gateway; "" for the node where the job's programs are
	Device  int         `json:"device"`            // its number on that node
	Memory  uint64      `json:"memory,omitempty"`  // bytes that the job may take of it; 0 for all, and then no other job may use it
	Reach   model.Reach `json:"reach,omitempty"`   // how far from it the job's programs may be bound
	Beyond  uint64      `json:"beyond,omitempty"`  // bytes that they may use of it beyond Memory while those are free; model.AllBeyond for all
}

// Credential is a secret that only the job and the issuer of the grant know.
type Credential string

// String keeps the secret out of logs and messages.
func (Credential) String() string { return "(a secret)" }

const credentialBytes = 32

var encoding = base64.RawURLEncoding.Strict()

// NewCredential makes a random credential.
func NewCredential() Credential {
	secret := make([]byte, credentialBytes)
	_, _ = rand.Read(secret) // never fails
	return Credential(encoding.EncodeToString(secret))
}

// Validate refuses credentials that NewCredential does not make.
func (c Credential) Validate() error {
	if secret, err := encoding.DecodeString(string(c)); err != nil || len(secret) != credentialBytes {
		return fmt.Errorf("a credential is %d bytes in base64url without padding", credentialBytes)
	}
	return nil
}

// of is the credential that is shown to a node which lends to the grant's home. Nobody can make that of another
// lender from it: a lender that lies could else use what others lend.
func (c Credential) of(lender string) Credential {
	mac := hmac.New(sha256.New, []byte(c))
	mac.Write([]byte(lender))
	return Credential(encoding.EncodeToString(mac.Sum(nil)))
}

// Hash is the hash by which nodes know the credential.
func (c Credential) Hash() Hash { return sha256.Sum256([]byte(c)) }

// Hash is the hash of a credential. Its text form is hexadecimal.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the hash as String does.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (h *Hash) UnmarshalText(text []byte) error {
	bytes, err := hex.DecodeString(string(text))
	if err != nil || len(bytes) != len(h) || string(text) != strings.ToLower(string(text)) {
		return fmt.Errorf("the hash of a credential is %d bytes in lower-case hexadecimal digits", len(h))
	}
	copy(h[:], bytes)
	return nil
}

// IsBorrowed says whether the device belongs to another node than that of the job's programs.
func (d Device) IsBorrowed() bool { return d.Address != "" }

// IsForHome says whether the node where the job's programs run is told of the device. Its own are. One of
// another node is if the programs may go elsewhere: their clients are at home then, and go on when the other
// node is lost, but each wait for an answer takes longer than by a relay. Programs that are bound to the device
// have their clients there.
func (d Device) IsForHome() bool { return !d.IsBorrowed() || d.Reach > model.ReachDevice }

// ForHome are the devices that the home is told of, in the order of the grant.
func (g *Grant) ForHome() (devices []Device) {
	for _, d := range g.Devices {
		if d.IsForHome() {
			devices = append(devices, d)
		}
	}
	return devices
}

// CheckName refuses what cannot be the name of a grant, a user or a node; what says which.
func CheckName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the %s is missing", what)
	case len(name) > MaxName:
		return fmt.Errorf("the %s has %d bytes: give at most %d", what, len(name), MaxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }):
		return fmt.Errorf("the %s %q has characters that no name has: use letters, digits and signs", what, name)
	}
	return nil
}

// CheckLimit refuses what cannot be the limit of a grant with this many devices.
func CheckLimit(limit, devices int) error {
	if limit < AllDevices || limit > devices {
		return fmt.Errorf("a limit of %d for a grant of %d devices: give 0 to %d, or %d for all", limit, devices, devices, AllDevices)
	}
	return nil
}

// Validate says what is wrong with a grant, if anything is.
func (g *Grant) Validate() error {
	if err := errors.Join(CheckName("grant's id", g.ID), CheckName("user", g.User)); err != nil {
		return err
	}
	if err := g.Secret.Validate(); err != nil {
		return fmt.Errorf("the secret: %w", err)
	}
	if len(g.Devices) == 0 || len(g.Devices) > MaxDevices {
		return fmt.Errorf("a grant of %d devices: give 1 to %d", len(g.Devices), MaxDevices)
	}
	if err := errors.Join(CheckLimit(g.Limit, len(g.Devices)), g.Turns.Validate()); err != nil {
		return err
	}
	if err := g.validateDevices(); err != nil {
		return err
	}
	return g.validateAuthority()
}

func (g *Grant) validateDevices() error {
	type place struct {
		node   string
		number int
	}
	seen, addresses := map[place]bool{}, map[string]string{}
	for i, d := range g.Devices {
		if err := d.validate(); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
		if seen[place{d.Node, d.Device}] {
			return fmt.Errorf("device %d: device %d of node %s is in the grant already", i, d.Device, d.Node)
		}
		seen[place{d.Node, d.Device}] = true
		if address, known := addresses[d.Node]; known && address != d.Address {
			return fmt.Errorf("device %d: node %s has two addresses, %q and %q", i, d.Node, address, d.Address)
		}
		addresses[d.Node] = d.Address
	}
	return nil
}

func (d Device) validate() error {
	if err := CheckName("node", d.Node); err != nil {
		return err
	}
	switch {
	case d.Device < 0 || d.Device > maxDevice:
		return fmt.Errorf("its number is %d: give 0 to %d", d.Device, maxDevice)
	case d.Memory > maxMemory:
		return fmt.Errorf("%d bytes of memory: give at most %d", d.Memory, uint64(maxMemory))
	}
	if err := CheckTerms(d.Memory, d.Reach, d.Beyond); err != nil || d.Address == "" {
		return err
	}
	return CheckAddress(d.Address)
}

// CheckTerms refuses what cannot be said of a device of which a job has this much memory (0: all).
func CheckTerms(memory uint64, reach model.Reach, beyond uint64) error {
	if _, err := reach.MarshalText(); err != nil {
		return err
	}
	return model.CheckBeyond(memory, beyond)
}

// CheckAddress refuses what cannot be the address of a node's gateway.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || CheckName("host", host) != nil || len(address) > MaxName {
		return fmt.Errorf("the address %.260q is not HOST:PORT", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("the address %q has no port from 1 to 65535", address)
	}
	return nil
}

func (g *Grant) validateAuthority() error {
	borrowed := false
	for _, d := range g.Devices {
		borrowed = borrowed || d.IsBorrowed()
	}
	switch {
	case len(g.Authority) > maxAuthority:
		return fmt.Errorf("the authority has %d bytes: give at most %d", len(g.Authority), maxAuthority)
	case g.Authority == "" && borrowed:
		return errors.New("some devices are on other nodes, and no authority vouches for those: give its certificate, the ca.pem that muster cert made")
	case g.Authority == "":
		return nil
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(g.Authority)) {
		return errors.New("the authority has no certificate in PEM form")
	}
	return nil
}

// On returns the devices of one node, in the order of the grant.
func (g *Grant) On(node string) []Device {
	var on []Device
	for _, d := range g.Devices {
		if d.Node == node {
			on = append(on, d)
		}
	}
	return on
}

// SecretFor is the credential that the node of a device is shown: each lender has its own.
func (g *Grant) SecretFor(d Device) Credential {
	if d.IsBorrowed() {
		return g.Secret.of(d.Node)
	}
	return g.Secret
}

// Place is the place of device i among those of its node.
func (g *Grant) Place(i int) (n int) {
	for _, d := range g.Devices[:i] {
		if d.Node == g.Devices[i].Node {
			n++
		}
	}
	return n
}

// Environment is what the job's processes are told about its devices in their environment.
func (g *Grant) Environment() []string {
	cluster := &model.Cluster{}
	numbers := map[string]int32{}
	var devices []model.Device
	for _, d := range g.Devices {
		n, known := numbers[d.Node]
		if !known {
			n = int32(len(cluster.Nodes))
			numbers[d.Node] = n
			cluster.Nodes = append(cluster.Nodes, model.Node{Name: d.Node})
		}
		devices = append(devices, model.Device{Node: n, Device: int32(d.Device)})
	}
	return cluster.DeviceEnvironment(devices)
}

// Encode writes the document.
func (g *Grant) Encode() ([]byte, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return nil, err
	}
	if text = append(text, '\n'); len(text) > MaxBytes {
		return nil, fmt.Errorf("the grant has %d bytes: at most %d are read", len(text), MaxBytes)
	}
	return text, nil
}

// Decode parses a document, which must have all fields that a grant needs and no others.
func Decode(text []byte) (*Grant, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("a grant has at most %d bytes, and this has more", MaxBytes)
	}
	var g struct {
		Grant
		Limit *int `json:"limit"` // a pointer, since 0 has a meaning of its own
	}
	if err := strictjson.Decode(text, &g); err != nil {
		return nil, fmt.Errorf("this is no grant: %w", err)
	}
	if g.Limit == nil {
		return nil, fmt.Errorf("the limit is missing: give %d for all devices", AllDevices)
	}
	g.Grant.Limit = *g.Limit
	if err := g.Grant.Validate(); err != nil {
		return nil, err
	}
	return &g.Grant, nil
}

// ParseDevice parses NODE:DEVICE or NODE:DEVICE:MEMORY, as people write a device.
func ParseDevice(text string) (Device, error) {
	node, rest, ok := strings.Cut(text, ":")
	number, memory, share := strings.Cut(rest, ":")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return Device{}, fmt.Errorf("%q is no device: write NODE:NUMBER, or NODE:NUMBER:MEMORY as gpu1:0:4GiB", text)
	}
	d := Device{Node: node, Device: n}
	if share {
		bytes, err := units.ParseSize(memory)
		if err != nil {
			return Device{}, fmt.Errorf("%q: the memory: %w", text, err)
		}
		if bytes <= 0 {
			return Device{}, fmt.Errorf("%q: give a share above 0, or leave it out for the whole device", text)
		}
		d.Memory = uint64(bytes)
	}
	return d, d.validate()
}

// String is the grant without its secret and without the authority, for logs.
func (g *Grant) String() string {
	var devices []string
	for _, d := range g.Devices {
		devices = append(devices, d.String())
	}
	return fmt.Sprintf("grant %s of user %s: %s", g.ID, g.User, strings.Join(devices, ", "))
}

// String is the device as ParseDevice reads it.
func (d Device) String() string {
	if d.Memory == 0 {
		return fmt.Sprintf("%s:%d", d.Node, d.Device)
	}
	return fmt.Sprintf("%s:%d:%d", d.Node, d.Device, d.Memory)
}
