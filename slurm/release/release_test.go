package release

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for _, c := range []struct{ text, want, wrong string }{
		{"22.05", "22.05", ""},
		{"26.05.5-1", "26.05", ""},
		{"24.11.5-4+deb13u1", "24.11", ""},
		{"slurm-wlm 22.05.8\n", "22.05", ""},
		{"slurm 26.05.5", "26.05", ""},
		{"1:26.05.5", "26.05", ""},
		{"25.05.1", "", "Slurm 25.05 is not known here: Muster works with 22.05, 24.11, 26.05, and would rather place nothing than misplace a job"},
		{"26.055", "", "is no version of Slurm"},
		{"126.05", "", "is no version of Slurm"},
		{"", "", `"" is no version of Slurm: give one as 26.05 or 26.05.5`},
		{strings.Repeat("x", 500), "", "is no version of Slurm"},
	} {
		r, err := Of(c.text)
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%q: got %v, want %s", c.text, err, c.wrong)
			}
		case err != nil || r.Name != c.want:
			t.Errorf("%q: got %v, %v", c.text, r, err)
		}
	}
}

func TestPlacement(t *testing.T) {
	for name, want := range map[string]string{
		"22.05": `{"hold":false,"nodelist":"n2,n4","nodes":"2"}`,
		"24.11": `{"admin_comment":"why","hold":false,"nodes":"2","required_nodes":["n2","n4"]}`,
		"26.05": `{"admin_comment":"why","hold":false,"nodes":"2","required_nodes":["n2","n4"]}`,
	} {
		r, err := Of(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(r.Placement([]string{"n2", "n4"}, "why"))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
}

func TestEveryReleaseIsWhole(t *testing.T) {
	for _, r := range All() {
		if len(r.Suites) == 0 || !r.Serves(r.API) || r.RESTPlugins == "" || r.Words.NodeList == "" {
			t.Errorf("%s lacks something: %+v", r.Name, r)
		}
	}
	if Newest().Name != "26.05" {
		t.Errorf("the newest is %s", Newest().Name)
	}
}

func FuzzOf(f *testing.F) {
	for _, seed := range []string{"26.05", "slurm 22.05.8", "99.99"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := Of(text); err == nil && !strings.Contains(text, r.Name) {
			t.Errorf("%q is taken for %s", text, r.Name)
		}
	})
}
