package script

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the reference into the guide")

const (
	guide = "../../docs/policy-scripts.md"
	begin = "<!-- reference: made by go test ./policy/script -run TestGuide -update -->\n"
	end   = "<!-- end of the reference -->\n"
)

// The guide's reference is what the interpreter has, and its examples can be loaded.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the guide has no place for the reference")
	}
	want := before + begin + Reference() + end + after
	if *update {
		if err := os.WriteFile(guide, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("the reference in docs/policy-scripts.md is stale: run the test with -update")
	}
	examples := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(examples) < 4 {
		t.Errorf("only %d examples were found", len(examples))
	}
	for _, e := range examples {
		if _, err := Load("guide.star", []byte(e[1]), "", easyFallback); err != nil {
			t.Errorf("%v in\n%s", err, e[1])
		}
	}
}

func TestBundledLoad(t *testing.T) {
	for _, b := range AllBundled() {
		if _, err := Load(b.Name, b.Source, "", easyFallback); err != nil {
			t.Error(err)
		}
		if b.Summary == "" {
			t.Errorf("%s does not say what it does", b.Name)
		}
	}
}
