package strictyaml

import (
	"errors"
	"strings"
	"testing"
)

// A document that is wrong anywhere changes nothing.
func TestInto(t *testing.T) {
	type config struct{ name, other string }
	f := &File{Name: "c.yaml", What: "a configuration", Empty: "write name: x"}
	c := config{"before", "kept"}
	decode := func(root Node, c *config) error {
		_, err := f.Fields(root, f.What, Key("name", f.Text("name", &c.name)))
		return err
	}
	if err := Into(f, []byte("name: after\n"), &c, decode); err != nil || c != (config{"after", "kept"}) {
		t.Errorf("%+v, %v", c, err)
	}
	for _, text := range []string{"name: [\n", "name: x\nnone: y\n", ""} {
		if err := Into(f, []byte(text), &c, decode); err == nil || c != (config{"after", "kept"}) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	wrong := errors.New("wrong")
	err := Into(f, []byte("name: x\n"), &c, func(_ Node, c *config) error { c.name = "half"; return wrong })
	if !errors.Is(err, wrong) || c.name != "after" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestListenAddress(t *testing.T) {
	parse := ListenAddress("9420")
	for _, good := range []string{":9420", "127.0.0.1:0", "[::1]:65535", "host:http"} {
		if got, err := parse(good); got != good || err != nil {
			t.Errorf("%s: %s, %v", good, got, err)
		}
	}
	for _, bad := range []string{"", "9420", "host", "host:", "host:65536", "host:-1"} {
		if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), "as 127.0.0.1:9420") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
