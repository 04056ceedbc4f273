package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/wire/grant"
)

// A grant that others can read is refused, and so is what is no grant.
func TestReadGrant(t *testing.T) {
	g := &grant.Grant{ID: "17.1.0", User: "alice", Secret: grant.NewCredential(), Limit: grant.AllDevices, Devices: []grant.Device{{Node: "n1", Device: 0}}}
	whole, err := g.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		text []byte
		mode os.FileMode
		want string
	}{
		{"a grant", whole, 0o600, ""},
		{"one that others can read", whole, 0o640, "chmod 600"},
		{"something else", []byte("devices: 2\n"), 0o600, "something else: "},
		{"too much", []byte(strings.Repeat("x", grant.MaxBytes+1)), 0o600, "is it a grant"},
	} {
		file := filepath.Join(t.TempDir(), c.name)
		if err := os.WriteFile(file, c.text, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, c.mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		got, err := ReadGrant(file)
		if c.want == "" && (err != nil || got.ID != g.ID) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}
