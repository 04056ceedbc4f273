package jsontable

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

type job struct {
	name  string
	cores int
}

var columns = Columns[job]{
	{"NAME", "name", func(j *job) string { return j.name }},
	{"CORES", "cores", func(j *job) string { return strconv.Itoa(j.cores) }},
}

func TestColumns(t *testing.T) {
	list := []job{{"train", 4}, {"a-long-name", 16}}
	var whole, narrow strings.Builder
	if err := columns.Write(&whole, list, "NAME", 0); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(whole.String(), "\n"), "\n")
	if len(lines) != 3 || !slices.Equal(strings.Fields(lines[0]), []string{"NAME", "CORES"}) || !slices.Equal(strings.Fields(lines[2]), []string{"a-long-name", "16"}) {
		t.Errorf("%q", lines)
	}
	if err := columns.Write(&narrow, list, "NAME", 16); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimRight(narrow.String(), "\n"), "\n") {
		if len([]rune(line)) > 16 {
			t.Errorf("%q is too wide", line)
		}
	}
	if said := columns.Said(); !slices.Equal(said, []Said{{"NAME", "name"}, {"CORES", "cores"}}) {
		t.Error(said)
	}
}
