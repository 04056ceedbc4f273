package scriptfile

import (
	"errors"
	"strings"
	"testing"
)

const good = "def decide(view, plan):\n  for job in view.fitting():\n    plan.start(job)\n"

func TestFilesAreTold(t *testing.T) {
	for spec, want := range map[string][2]string{
		"easy": {}, "easy:depth=1": {}, "star": {},
		"a.star": {"a.star", ""}, "/x/a.star:k=v:l=w": {"/x/a.star", "k=v:l=w"}, "./b.star:": {"./b.star", ""},
		"odd:name.star:k=v": {"odd:name.star", "k=v"},
	} {
		path, settings := split(spec)
		if path != want[0] || settings != want[1] || Is(spec) != (want[0] != "") {
			t.Errorf("%s is %q and %q", spec, path, settings)
		}
	}
}

// A file that changes comes into force; one that is wrong does not, and is told once.
func TestFileThatChanges(t *testing.T) {
	text, failed := good, error(nil)
	read := func(string) ([]byte, error) { return []byte(text), failed }
	f, _, err := Open("p.star", read)
	if err != nil {
		t.Fatal(err)
	}
	look := func(want string) {
		t.Helper()
		l, err := f.Look()
		got := "nothing"
		switch {
		case err != nil:
			got = err.Error()
		case l != nil:
			got = "new"
		}
		if got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	look("nothing")
	text = good + "x = (\n"
	look("p.star:5:1: got end of file, want primary expression")
	look("nothing")
	if f.Wrong() == nil {
		t.Error("nothing is wrong")
	}
	if _, err := f.Fresh(); err != nil {
		t.Errorf("the one in force cannot be made: %v", err)
	}
	text = good
	look("nothing")
	if f.Wrong() != nil {
		t.Errorf("still wrong: %v", f.Wrong())
	}
	text = strings.Replace(good, "job", "j", 4)
	look("new")
	failed = errors.New("gone")
	look("gone")
	look("nothing")
	failed = nil
	look("nothing")
	if f.Wrong() != nil {
		t.Errorf("still wrong: %v", f.Wrong())
	}
	text = "def decide(view): pass"
	look("p.star:1:1: decide has 1 parameters: it is called with 2")
	failed = errors.New("gone")
	look("gone")
	failed = nil
	look("p.star:1:1: decide has 1 parameters: it is called with 2")
}
