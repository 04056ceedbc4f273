package strictyaml

import (
	"strings"
	"testing"
	"time"
)

// settings is a file of this test.
type settings struct {
	size     int64
	rate     int64
	wait     time.Duration
	share    float64
	count    int
	on       bool
	text, id string
	list     []string
}

func read(text string) (settings, error) {
	var s settings
	f := File{Name: "f", What: "a file of settings", Empty: "write something"}
	root, err := f.Parse([]byte(text))
	if err != nil {
		return s, err
	}
	_, err = f.Fields(root, f.What,
		Key("size", f.Size("size", &s.size)),
		Key("rate", f.Bandwidth("rate", &s.rate)),
		Key("wait", f.Duration("wait", &s.wait)),
		Key("share", f.Number("share", "from 0 to 1", func(x float64) bool { return x >= 0 && x <= 1 }, &s.share)),
		Key("count", f.Count("count", 1, 9, &s.count)),
		Key("on", f.Bool("on", &s.on)),
		Key("text", f.Text("text", &s.text)),
		Key("id", f.Identifier("id", &s.id)),
		Key("list", func(n Node) error {
			items, ok := Items(n)
			if !ok {
				return f.Errorf(Start(n), "list must be a list, not %s", Kind(n))
			}
			for _, item := range items {
				w, err := f.Scalar(item, "an item")
				if err != nil {
					return err
				}
				s.list = append(s.list, w.Text)
			}
			return nil
		}),
	)
	return s, err
}

// The mark with which some editors begin a file is no part of the first key, and moves nothing.
func TestByteOrderMark(t *testing.T) {
	if s, err := read("\ufeffcount: 3\n"); err != nil || s.count != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := read("\ufeffcont: 3\n"); err == nil || !strings.HasPrefix(err.Error(), "f:1:1: \"cont\"") {
		t.Errorf("got the error %v", err)
	}
}

func TestValues(t *testing.T) {
	s, err := read("size: 4KiB\nrate: 1GB/s\nwait: 2s\nshare: 0.5\ncount: 3\non: true\ntext: any thing\nid: a-b\nlist: [1, two]\n")
	if err != nil {
		t.Fatal(err)
	}
	if s.size != 4096 || s.rate != 1e9 || s.wait != 2*time.Second || s.share != 0.5 || s.count != 3 || !s.on || s.text != "any thing" || s.id != "a-b" ||
		strings.Join(s.list, " ") != "1 two" {
		t.Errorf("%+v", s)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "# nothing\n", "f:1:1: the file is empty: write something"},
		{"not text", "size: \xff\n", "f:1:1: the file is not UTF-8 text: a file of settings is YAML"},
		{"not YAML", "size: [1\n", "f:1:7: not valid YAML"},
		{"not a mapping", "- 1\n", "f:1:1: a file of settings must be a mapping of keys to values, not a list"},
		{"two documents", "on: true\n---\non: true\n", "f:3:1: a second document: write a file of settings into a file of its own"},
		{"too deep", "list: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "\n", "nested too deeply for a file of settings"},
		{"near key", "siz: 1\n", `f:1:1: "siz" is no key of a file of settings: did you mean size?`},
		{"far key", "zzzzzzzz: 1\n", `f:1:1: "zzzzzzzz" is no key of a file of settings: it is one of size, rate, wait`},
		{"twice", "on: true\n\non: false\n", `f:3:1: "on" is given twice, first on line 1: remove one`},
		{"nothing", "size:\n", "f:1:7: size must be a plain value, not nothing"},
		{"mapping", "size: {a: 1}\n", "f:1:7: size must be a plain value, not a mapping"},
		{"alias", "size: &a 1\ncount: *a\n", "f:1:7: an anchor or alias, which are not read: write the value out"},
		{"number", "share: 2\n", `f:1:8: share: must be a number from 0 to 1, not "2"`},
		{"not a number", "share: .nan\n", `share: must be a number from 0 to 1`},
		{"count", "count: 10\n", `f:1:8: count: must be a whole number from 1 to 9, not "10"`},
		{"bool", "on: yes\n", `f:1:5: on: must be true or false, not "yes"`},
		{"text", "text: \"\"\n", "f:1:7: text: must not be empty"},
		{"identifier", "id: a/b\n", `f:1:5: id: must be made of letters, digits and ._-+, not "a/b"`},
		{"list", "list: 1\n", "f:1:7: list must be a list, not a plain value"},
	} {
		_, err := read(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v\nwant %s", c.name, err, c.want)
		}
	}
}
