package content

import (
	"reflect"
	"strings"
	"testing"

	"muster/model/slurmopt"
	"muster/wire/api"
)

// A seed determines every piece, and a few thousand pieces have every kind.
func TestASeedIsTheSameContent(t *testing.T) {
	draw := func() (all []any, kinds map[Kind]int) {
		s := New(7, 1)
		s.Jobs, s.Most = []uint64{3, 4}, 4096
		kinds = map[Kind]int{}
		for range 300 {
			request := s.Request()
			kinds[request.Kind]++
			all = append(all, request)
			for _, f := range []func() (Kind, []byte){s.Line, s.Message, s.Bytes, s.Policy} {
				kind, text := f()
				kinds[kind]++
				all = append(all, string(text))
			}
		}
		return all, kinds
	}
	one, kinds := draw()
	two, _ := draw()
	if !reflect.DeepEqual(one, two) {
		t.Error("one seed drew two things")
	}
	for _, k := range Kinds {
		if kinds[k] < 2 {
			t.Errorf("%d pieces of kind %s", kinds[k], k)
		}
	}
}

// Every option that is drawn is one that a submission has, so that what follows it is looked at, and
// every option of a submission is drawn.
func TestOptionsAreKnown(t *testing.T) {
	for _, list := range [][]string{textOptions, numberOptions, wordOptions, plain} {
		for _, o := range list {
			_, err := slurmopt.Parse([]string{slurmopt.Submit, o})
			if err != nil && (strings.Contains(err.Error(), "no option") || strings.Contains(err.Error(), "unknown")) {
				t.Errorf("%s: %v", o, err)
			}
		}
	}
}

// The submissions that showed the defects for which this package was written are among the first
// thousands.
func TestKnownAttacksAreDrawn(t *testing.T) {
	s := New(1, 1)
	s.Most = 300
	found := map[string]bool{}
	for range 5_000 {
		_, doc := s.Submission()
		for name, has := range attacks(&doc) {
			found[name] = found[name] || has
		}
	}
	for _, name := range []string{"a name with a zero byte", "an account with a zero byte", "17 GPUs", "a huge array"} {
		if !found[name] {
			t.Errorf("%s is never drawn", name)
		}
	}
}

func attacks(doc *api.Submission) map[string]bool {
	line := strings.Join(doc.Options, " ")
	zero := func(options ...string) bool {
		for _, o := range options {
			for _, word := range doc.Options {
				if strings.HasPrefix(word, o) && strings.Contains(word, "\x00") {
					return true
				}
			}
		}
		return false
	}
	return map[string]bool{
		"a name with a zero byte":     zero("-J", "--job-name="),
		"an account with a zero byte": zero("-A", "--account="),
		"17 GPUs":                     strings.Contains(line, "--gres=rgpu:17"),
		"a huge array":                strings.Contains(line, "--array=0-99999"),
	}
}
