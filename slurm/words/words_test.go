package words

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"muster/model"
)

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, l := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if !strings.HasPrefix(l, "#") {
			list = append(list, l)
		}
	}
	return list
}

func TestLinesComeBack(t *testing.T) {
	for _, l := range lines(t, "testdata/words.txt") {
		c, err := Parse(l)
		if err != nil {
			t.Errorf("%v", err)
		} else if got := c.String(); got != l {
			t.Errorf("read %q, wrote %q", l, got)
		}
	}
}

func TestWrongLines(t *testing.T) {
	for _, l := range lines(t, "testdata/wrong.txt") {
		if c, err := Parse(l); err == nil {
			t.Errorf("%q was read as %+v", l, c)
		}
	}
}

func TestWhatIsRead(t *testing.T) {
	got, err := Parse("night run muster:req rgpu=2 mem=4096M mode=shar or=-n4%20-c2 muster:got 1 17 nodes=n5,n7 rgpu=n1:0,n3:1 grant=/run/a%20b why=it is first")
	want := Comment{
		Other:   "night run",
		Request: &Request{GPUs: 2, MemoryMB: 4096, Mode: Shared, Or: []string{"-n4 -c2"}},
		Answer:  &Answer{Start: 1, Job: 17, Nodes: []string{"n5", "n7"}, Devices: []Device{{"n1", 0}, {"n3", 1}}, Grant: "/run/a b", Why: "it is first"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if !got.Answer.For(17, 1) || got.Answer.For(17, 2) || got.Answer.For(18, 1) || (*Answer)(nil).For(17, 1) {
		t.Error("an answer is for one start of one job")
	}
}

func TestTermsAreRead(t *testing.T) {
	got, err := Parse("muster:req rgpu=2 reach=node beyond=3M map=ar:alpha=1")
	reach, beyond := model.ReachNode, uint64(3<<20)
	if want := (model.Terms{Reach: &reach, Beyond: &beyond, Mapping: "ar:alpha=1"}); err != nil || !reflect.DeepEqual(got.Request.Terms, want) {
		t.Errorf("got %+v, %v", got.Request, err)
	}
}

func TestOthersWords(t *testing.T) {
	for _, l := range []string{"", "a remark", "see muster:request", "xmuster:req", "muster:got 0 17 nodes=n1"} {
		if c, err := Parse(l); err != nil || c.Request != nil || c.String() != l {
			t.Errorf("%q: %+v, %v", l, c, err)
		}
	}
}

func TestTooLong(t *testing.T) {
	if _, err := Parse(strings.Repeat("x", MaxComment+1)); err == nil {
		t.Error("a comment beyond the limit was read")
	}
	if _, err := Parse("muster:req" + strings.Repeat(" or=x", maxWords+1)); err == nil {
		t.Error("a comment with too many words was read")
	}
}

func TestSentencesStayInOneLine(t *testing.T) {
	c := Comment{Request: &Request{}, Why: "first\nsecond\x00 "}
	if got := c.String(); got != "muster:req muster:wait why=first second" {
		t.Errorf("got %q", got)
	}
}

// FuzzParse: a comment that was parsed is formatted so that it parses to the same.
func FuzzParse(f *testing.F) {
	for _, l := range []string{"", "x muster:req", "muster:req rgpu=1 or=a%20b muster:wait why=x", "muster:req reach=device beyond=all map=x%20", "muster:req muster:got 0 17 nodes=n1 rgpu=n1:0 grant=- why=x"} {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(c.String())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%q: first %+v, then %+v, %v", text, c, again, err)
		}
	})
}

// A driver that was started again must lend each node's processes what the one before lent them.
func TestWhoUsesADevice(t *testing.T) {
	for _, c := range []struct {
		nodes, devices int
		want           []int
	}{
		{1, 3, []int{0, 0, 0}},
		{2, 2, []int{0, 1}},
		{2, 4, []int{0, 0, 1, 1}},
		{2, 3, []int{0, 0, 1}},
		{3, 7, []int{0, 0, 0, 1, 1, 2, 2}},
		{4, 2, []int{0, 1}},
	} {
		a := Answer{Nodes: make([]string, c.nodes), Devices: make([]Device, c.devices)}
		var got []int
		for i := range a.Devices {
			got = append(got, a.UserOf(i))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d devices for %d nodes: %v, want %v", c.devices, c.nodes, got, c.want)
		}
	}
}
