package grant

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"muster/model"
)

// authority is a certificate in PEM form.
func authority(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
}

func example(t testing.TB) *Grant {
	return &Grant{
		ID: "17.1.0", User: "ada", Secret: NewCredential(), Limit: AllDevices, Authority: authority(t),
		Devices: []Device{{Node: "gpu1", Device: 0}, {Node: "gpu2", Address: "gpu2:7070", Device: 1, Memory: 4 << 30}},
	}
}

func TestRoundTrip(t *testing.T) {
	for _, change := range []func(*Grant){
		func(*Grant) {},
		func(g *Grant) { g.Limit = 0 },
		func(g *Grant) { g.Devices, g.Authority = g.Devices[:1], "" },
		func(g *Grant) { g.Devices[0].Reach = model.ReachNode }, // a whole device
		func(g *Grant) { g.Devices[1].Reach, g.Devices[1].Beyond = model.ReachCluster, model.AllBeyond },
		func(g *Grant) { g.Class, g.Weight = model.ClassLatency, model.MaxWeight },
	} {
		g := example(t)
		change(g)
		text, err := g.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, g) {
			t.Errorf("got %+v, want %+v", back, g)
		}
	}
}

// TestDocument holds the text of a document, which other programs write too.
func TestDocument(t *testing.T) {
	g := example(t)
	g.Secret, g.Authority, g.Devices[1].Address = Credential(strings.Repeat("A", 43)), "", ""
	g.Devices[0].Reach, g.Devices[1].Reach, g.Devices[1].Beyond = model.ReachCluster, model.ReachNode, 8<<30
	g.Class, g.Weight = model.ClassLatency, 2
	text, err := g.Encode()
	const want = `{
  "id": "17.1.0",
  "user": "ada",
  "secret": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
  "devices": [
    {
      "node": "gpu1",
      "device": 0,
      "reach": "cluster"
    },
    {
      "node": "gpu2",
      "device": 1,
      "memory": 4294967296,
      "reach": "node",
      "beyond": 8589934592
    }
  ],
  "limit": -1,
  "class": "latency",
  "weight": 2
}
`
	if err != nil || string(text) != want {
		t.Errorf("%s\n%v", text, err)
	}
	said, err := Decode([]byte(strings.Replace(want, `"device": 0,`, `"device": 0, "memory": 0, "beyond": 0,`, 1)))
	if err != nil || !reflect.DeepEqual(said, g) {
		t.Errorf("%+v %v", said, err)
	}
	said, err = Decode([]byte(strings.Replace(want, `"cluster"`, `"device"`, 1))) // what it is without the word
	if err != nil || said.Devices[0] != (Device{Node: "gpu1"}) {
		t.Errorf("%+v %v", said, err)
	}
}

// TestLoans: a node is told all that the grant says of its devices, and is refused the same.
func TestLoans(t *testing.T) {
	g := example(t)
	g.Class, g.Weight, g.Devices[1].Reach, g.Devices[1].Beyond = model.ClassBatch, 7, model.ReachNode, 1
	l := g.Loan("gpu2")
	if err := l.Validate(); err != nil || l.Turns != g.Turns || !reflect.DeepEqual(l.Devices, g.Devices[1:]) || l.Hash != g.Secret.Hash() || l.Shown != g.SecretFor(g.Devices[1]).Hash() {
		t.Errorf("%+v %v", l, err)
	}
	for want, change := range map[string]func(*Loan){
		"a weight of -1": func(l *Loan) { l.Weight = -1 }, "no class": func(l *Loan) { l.Class = "x" },
		"beyond the share": func(l *Loan) { l.Devices[0].Memory = 0 }, "no reach 9": func(l *Loan) { l.Devices[0].Reach = 9 },
	} {
		l := g.Loan("gpu2")
		change(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The home is told of devices of other nodes that programs may leave, and then of all that it needs to use them.
func TestLoansForTheHome(t *testing.T) {
	g := example(t)
	if g.NeedsHome() {
		t.Error("programs that never leave a device have their clients there")
	}
	g.Devices[1].Reach = model.ReachNode
	l := g.HomeLoan("gpu1")
	if err := l.Validate(); err != nil || !g.NeedsHome() || !reflect.DeepEqual(l.OfHome().Devices, g.Devices) || l.Secret != g.Secret || l.Authority != g.Authority {
		t.Errorf("%+v %v", l, err)
	}
	if own := l.Own(); own.Validate() != nil || own.OfHome() != nil || !reflect.DeepEqual(own, g.Loan("gpu1")) {
		t.Errorf("%+v %v", own, own.Validate())
	}
	for want, change := range map[string]func(*Loan){
		"a secret or an authority, which are for a home": func(l *Loan) { l.Home = "" },
		"a secret that is another grant's":               func(l *Loan) { l.Hash[0]++ },
		"the secret":                                     func(l *Loan) { l.Secret = "" },
		"no authority vouches":                           func(l *Loan) { l.Authority = "" },
		"have no address, and all others have one":       func(l *Loan) { l.Home = "gpu2" },
		"a limit of 3":                                   func(l *Loan) { l.Limit = 3 },
		"no device of another node":                      func(l *Loan) { l.Devices[1].Reach = model.ReachDevice },
	} {
		l := g.HomeLoan("gpu1")
		l.Devices = slices.Clone(l.Devices)
		change(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestDocumentsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Grant)
		want   string
	}{
		{"no id", func(g *Grant) { g.ID = "" }, "the grant's id is missing"},
		{"long id", func(g *Grant) { g.ID = strings.Repeat("x", 256) }, "has 256 bytes: give at most 255"},
		{"space", func(g *Grant) { g.User = "a b" }, "has characters that no name has"},
		{"escape", func(g *Grant) { g.ID = "\x1b[2J" }, "has characters that no name has"},
		{"short secret", func(g *Grant) { g.Secret = "abcd" }, "a credential is 32 bytes"},
		{"padded secret", func(g *Grant) { g.Secret += "=" }, "a credential is 32 bytes"},
		{"no devices", func(g *Grant) { g.Devices = nil }, "a grant of 0 devices"},
		{"many devices", func(g *Grant) { g.Devices = make([]Device, 17) }, "a grant of 17 devices"},
		{"limit", func(g *Grant) { g.Limit = 3 }, "a limit of 3 for a grant of 2 devices"},
		{"negative limit", func(g *Grant) { g.Limit = -2 }, "a limit of -2"},
		{"no node", func(g *Grant) { g.Devices[1].Node = "" }, "device 1: the node is missing"},
		{"negative device", func(g *Grant) { g.Devices[1].Device = -1 }, "device 1: its number is -1"},
		{"memory", func(g *Grant) { g.Devices[1].Memory = 1<<60 + 1 }, "bytes of memory: give at most"},
		{"reach", func(g *Grant) { g.Devices[1].Reach = 3 }, "device 1: there is no reach 3"},
		{"beyond a whole device", func(g *Grant) { g.Devices[0].Beyond = 1 }, "device 0: 1 bytes beyond the share of a whole GPU"},
		{"beyond all", func(g *Grant) { g.Devices[1].Beyond = model.AllBeyond + 1 }, "device 1: 1152921504606846977 bytes beyond the share: give at most"},
		{"class", func(g *Grant) { g.Class = "any" }, `there is no class "any": use latency or batch`},
		{"weight", func(g *Grant) { g.Weight = model.MaxWeight + 1 }, "a weight of 1001: give 1 to 1000"},
		{"address", func(g *Grant) { g.Devices[1].Address = "gpu2" }, `the address "gpu2" is not HOST:PORT`},
		{"port", func(g *Grant) { g.Devices[1].Address = "gpu2:0" }, "has no port from 1 to 65535"},
		{"twice", func(g *Grant) { g.Devices = append(g.Devices, g.Devices[0]) }, "device 2: device 0 of node gpu1 is in the grant already"},
		{"two addresses", func(g *Grant) { g.Devices = append(g.Devices, Device{Node: "gpu2"}) }, "node gpu2 has two addresses"},
		{"no authority", func(g *Grant) { g.Authority = "" }, "no authority vouches for those"},
		{"wrong authority", func(g *Grant) { g.Authority = "me" }, "no certificate in PEM form"},
		{"long authority", func(g *Grant) { g.Authority = strings.Repeat("x", maxAuthority+1) }, "give at most"},
	} {
		g := example(t)
		c.change(g)
		if _, err := g.Encode(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestTextsThatAreRefused(t *testing.T) {
	good, err := example(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "this is no grant"},
		{"two", string(good) + string(good), "something follows the object"},
		{"another case", strings.Replace(string(good), `"id"`, `"ID"`, 1), `unknown field "ID": write "id"`},
		{"twice", strings.Replace(string(good), `"id"`, `"limit": 1, "id"`, 1), "is given twice"},
		{"unknown field", strings.Replace(string(good), `"id"`, `"more": 1, "id"`, 1), "unknown field"},
		{"no limit", strings.Replace(string(good), `"limit": -1,`, "", 1), "the limit is missing"},
		{"another reach", strings.Replace(string(good), `"device": 1,`, `"device": 1, "reach": "nodes",`, 1), `did you mean "node"?`},
		{"a reach of nothing", strings.Replace(string(good), `"device": 1,`, `"device": 1, "reach": "",`, 1), "is no reach"},
		{"less than nothing beyond", strings.Replace(string(good), `"device": 1,`, `"device": 1, "beyond": -1,`, 1), "this is no grant"},
		{"long", string(good) + strings.Repeat(" ", MaxBytes), "at most 262144 bytes"},
		{"a list", "[]", "this is no grant"},
	} {
		if _, err := Decode([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestDevicesAsPeopleWriteThem(t *testing.T) {
	for _, c := range []struct {
		text string
		want Device
		bad  string
	}{
		{text: "gpu1:0", want: Device{Node: "gpu1"}},
		{text: "gpu2:1:4GiB", want: Device{Node: "gpu2", Device: 1, Memory: 4 << 30}},
		{text: "gpu1", bad: "is no device"},
		{text: "gpu1:x", bad: "is no device"},
		{text: ":0", bad: "the node is missing"},
		{text: "gpu1:0:0", bad: "give a share above 0"},
		{text: "gpu1:0:much", bad: "the memory"},
		{text: "gpu1:-1", bad: "its number is -1"},
	} {
		got, err := ParseDevice(c.text)
		if c.bad == "" && (err != nil || got != c.want) || c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)) {
			t.Errorf("%s: got %+v, %v", c.text, got, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := strings.Join(example(t).Environment(), " ")
	if want := "RCUDA_DEVICE_COUNT=2 RCUDA_DEVICE_0=gpu1:0 RCUDA_DEVICE_1=gpu2:1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	g := example(t)
	for _, text := range []string{fmt.Sprint(g), fmt.Sprintf("%v %+v %s", *g, *g, g.Secret)} {
		if strings.Contains(text, string(g.Secret)) {
			t.Errorf("%s has the secret", text)
		}
	}
}

func TestHashes(t *testing.T) {
	a, b := NewCredential(), NewCredential()
	if a.Hash() == b.Hash() || a.Hash() != a.Hash() {
		t.Error("hashes do not tell credentials apart")
	}
	text, _ := a.Hash().MarshalText()
	var back Hash
	if err := back.UnmarshalText(text); err != nil || back != a.Hash() {
		t.Errorf("got %v, %v", back, err)
	}
	for _, bad := range []string{"", "00", strings.ToUpper(string(text[:63])) + "A", string(text) + "00"} {
		if back.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q was taken for a hash", bad)
		}
	}
}

// FuzzDecode: whatever is decoded is a valid grant, and is encoded the same again.
func FuzzDecode(f *testing.F) {
	text, err := example(f).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(bytes.Replace(text, []byte(`"device": 1,`), []byte(`"device": 1, "reach": "cluster", "beyond": 5,`), 1))
	f.Add(bytes.Replace(text, []byte(`"limit"`), []byte(`"class": "batch", "weight": 3, "limit"`), 1))
	f.Add([]byte(`{"id":"a","user":"b","secret":"","devices":[{"node":"n","device":0}],"limit":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		g, err := Decode(text)
		if err != nil {
			return
		}
		first, err := g.Encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := Decode(first)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if second, err := again.Encode(); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s\nis written as\n%s (%v)", first, second, err)
		}
	})
}
