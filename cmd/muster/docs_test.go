package main

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the output in docs/workloads.md, docs/software-gpu.md, docs/whatif.md and docs/kernels.md")

// What the pages show is what the commands print: a console block has a
// command, as it is given in the root of the repository, and its output.
func TestDocsShowRealOutput(t *testing.T) {
	t.Chdir("../..")
	for _, page := range []string{"docs/workloads.md", "docs/software-gpu.md", "docs/whatif.md", "docs/kernels.md"} {
		t.Run(page, func(t *testing.T) {
			if page == "docs/kernels.md" && testing.Short() {
				t.Skip("its commands simulate for long")
			}
			checkPage(t, page)
		})
	}
}

func checkPage(t *testing.T, page string) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```console\n\\$ muster ([^\n]+)\n(.*?)```\n")
	shown := 0
	fresh := block.ReplaceAllFunc(text, func(b []byte) []byte {
		shown++
		m := block.FindSubmatch(b)
		var stdout, stderr bytes.Buffer
		if run(words(string(m[1])), strings.NewReader(""), &stdout, &stderr, func(string) string { return "" }) != exitDone {
			t.Errorf("muster %s: %s", m[1], &stderr)
		}
		return []byte("```console\n$ muster " + string(m[1]) + "\n" + stdout.String() + "```\n")
	})
	if shown == 0 {
		t.Fatalf("%s has no console block", page)
	}
	if *update {
		if err := os.WriteFile(page, fresh, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(fresh, text) {
		t.Errorf("%s shows what the commands no longer print: go test ./cmd/muster -run Docs -update rewrites it", page)
	}
}

// words splits a command as a shell does where quotes are around whole words.
func words(command string) []string {
	words := strings.Fields(command)
	for i, w := range words {
		words[i] = strings.Trim(w, "'")
	}
	return words
}

// Every column that docs/workloads.md lists can be read.
func TestDocsListRealColumns(t *testing.T) {
	text, err := os.ReadFile("../../docs/workloads.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### csv\n")
	var columns []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|").FindAllStringSubmatch(section, -1) {
		columns = append(columns, strings.Split(strings.NewReplacer("`", "", " ", "").Replace(row[1]), ",")...)
	}
	if len(columns) < 30 {
		t.Fatalf("only %d columns were found: %v", len(columns), columns)
	}
	values := make([]string, len(columns))
	for i, c := range columns {
		switch c {
		case "run", "nodes":
			values[i] = "1"
		}
	}
	csv := strings.Join(columns, ",") + "\n" + strings.Join(values, ",") + "\n"
	var stdout, stderr bytes.Buffer
	if run([]string{"workload", "convert", "--to", "csv", "-"}, strings.NewReader(csv), &stdout, &stderr, func(string) string { return "" }) != exitDone {
		t.Errorf("%s", &stderr)
	}
}
