package main

import (
	"strings"
	"testing"
	"time"
)

func play(t *testing.T, phases ...string) (string, bool) {
	t.Helper()
	out := &strings.Builder{}
	r := newResults(out)
	for _, p := range phases {
		if err := r.read(strings.NewReader(p)); err != nil {
			t.Fatal(err)
		}
	}
	ok := r.summarize(3 * time.Second)
	return out.String(), ok
}

const passes = `{"Action":"run","Package":"a","Test":"TestOne"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"noise\n"}
{"Action":"pass","Package":"a","Test":"TestOne","Elapsed":0.5}
{"Action":"pass","Package":"a","Elapsed":1}
`

const skips = `{"Action":"output","Package":"a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"    a_test.go:7: needs root: run the test as root\n"}
{"Action":"skip","Package":"a","Test":"TestOne","Elapsed":0}
{"Action":"pass","Package":"a","Elapsed":1}
`

const fails = `{"Action":"output","Package":"b","Test":"TestTwo","Output":"    b_test.go:7: wrong\n"}
{"Action":"fail","Package":"b","Test":"TestTwo/sub","Elapsed":0}
{"Action":"fail","Package":"b","Test":"TestTwo","Elapsed":0}
{"Action":"output","Package":"b","Output":"FAIL\n"}
{"Action":"fail","Package":"b","Elapsed":1}
`

const dies = `{"Action":"pass","Package":"c","Test":"TestZero","Elapsed":0}
{"Action":"output","Package":"c","Test":"TestThree","Output":"panic: no\n"}
{"Action":"fail","Package":"c","Elapsed":1}
`

// What a test says is repeated behind a long log, which would hide it.
func TestComplaints(t *testing.T) {
	log := strings.Repeat(`{"Action":"output","Package":"b","Test":"TestTwo","Output":"        {\"level\":\"INFO\"}\n"}`+"\n", longOutput)
	out, _ := play(t, strings.Replace(fails, "{\"Action\":\"fail\"", log+"{\"Action\":\"fail\"", 1))
	if _, behind, found := strings.Cut(out, "what TestTwo said itself:\n"); !found || !strings.HasPrefix(behind, "    b_test.go:7: wrong\n") || strings.Contains(behind, "INFO") {
		t.Errorf("got\n%s", out)
	}
}

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name   string
		phases []string
		ok     bool
		has    []string
		hasNot []string
	}{
		{"passes", []string{passes}, true, []string{"1 packages, 1 tests", "1 passed, 0 failed, 0 skipped\n"}, []string{"noise", "Not tested"}},
		{"runs in one phase only", []string{skips, passes}, true, []string{"1 passed, 0 failed, 0 skipped\n"}, []string{"Not tested"}},
		{"runs in no phase", []string{passes, skips, strings.ReplaceAll(skips, "TestOne", "TestRoot")}, true,
			[]string{"needs root: run the test as root\n    a TestRoot\n", "1 passed, 0 failed, 1 skipped\n"}, nil},
		{"fails", []string{passes, fails}, false, []string{"b_test.go:7: wrong", "FAILED b TestTwo\n", "1 passed, 1 failed, 0 skipped\n"}, nil},
		{"fails once of twice", []string{strings.ReplaceAll(fails, "Two", "One"), strings.ReplaceAll(passes, `"a"`, `"b"`)}, false, []string{"FAILED b TestOne\n"}, nil},
		{"a process dies", []string{passes, dies}, false, []string{"panic: no", "FAILED c\n"}, nil},
		{"nothing runs", []string{skips}, false, []string{"0 passed"}, nil},
	} {
		out, ok := play(t, c.phases...)
		if ok != c.ok {
			t.Errorf("%s: ok is %v\n%s", c.name, ok, out)
		}
		for _, has := range c.has {
			if !strings.Contains(out, has) {
				t.Errorf("%s: no %q in\n%s", c.name, has, out)
			}
		}
		for _, hasNot := range c.hasNot {
			if strings.Contains(out, hasNot) {
				t.Errorf("%s: %q in\n%s", c.name, hasNot, out)
			}
		}
	}
}

func TestParse(t *testing.T) {
	phases, err := parse(strings.Fields("one A=b C=d go test -race ./... --- --- two go test ./x ---"))
	if err != nil || len(phases) != 2 {
		t.Fatal(phases, err)
	}
	if got := strings.Join(phases[0].command, " "); got != "go test -json -race ./..." || len(phases[0].environment) != 2 || phases[1].title != "two" {
		t.Errorf("%+v", phases)
	}
	if _, err := parse([]string{"one", "make", "x"}); err == nil {
		t.Error("a command that is not go test was taken")
	}
}
