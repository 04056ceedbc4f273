package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
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
		if run(words(string(m[1])), strings.NewReader(""), &stdout, &stderr, func(string) string { return "" }) != cli.ExitDone {
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
	if run([]string{"workload", "convert", "--to", "csv", "-"}, strings.NewReader(csv), &stdout, &stderr, func(string) string { return "" }) != cli.ExitDone {
		t.Errorf("%s", &stderr)
	}
}

// Every command that a page names is there, with the flags that the page gives it.
func TestDocsNameRealFlags(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../examples/README.md")
	root := newRoot(io.Discard, io.Discard, func(string) string { return "" })
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range shownCommands(string(text)) {
			checked++
			if err := checkShown(root, command); err != nil {
				t.Errorf("%s: muster %s: %v", filepath.Base(page), strings.Join(command, " "), err)
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d commands were found", checked)
	}
}

var (
	codeSpan  = regexp.MustCompile("(?s)`([^`]+)`")
	codeLine  = regexp.MustCompile(`(?m)^(?:    |\$ |# ).*$`)
	invoked   = regexp.MustCompile(`(?:^|[\s(;&|/'])muster ([a-z][^;&|>)#]*)`)
	fenceMark = regexp.MustCompile("(?m)^```.*$")
)

// shownCommands are the words behind "muster" wherever a text has it as code: in a line of a block,
// or between backquotes.
func shownCommands(text string) [][]string {
	text = strings.ReplaceAll(text, "\\\n", " ")
	code := codeLine.FindAllString(text, -1)
	for _, span := range codeSpan.FindAllStringSubmatch(fenceMark.ReplaceAllString(text, ""), -1) {
		if strings.HasPrefix(span[1], "muster ") || strings.HasPrefix(span[1], "bin/muster ") {
			code = append(code, strings.ReplaceAll(span[1], "\n", " "))
		}
	}
	var shown [][]string
	for _, c := range code {
		for _, m := range invoked.FindAllStringSubmatch(c, -1) {
			shown = append(shown, strings.Fields(m[1]))
		}
	}
	return shown
}

// checkShown says whether the command is there, and has the flags before "--".
func checkShown(root *cobra.Command, words []string) error {
	if words[0] == "help" {
		words = words[1:]
	}
	if len(words) == 0 || strings.ContainsAny(words[0], ":/") {
		return nil // help itself, what a command says of itself, or a list of files
	}
	c, rest, err := root.Find(words)
	if err != nil || c == root {
		return fmt.Errorf("there is no such command")
	}
	for _, w := range rest {
		name, _, _ := strings.Cut(strings.TrimRight(w, ",.:'"), "=")
		switch {
		case w == "--":
			return nil
		case c.DisableFlagParsing:
		case strings.HasPrefix(name, "--"):
			if c.Flags().Lookup(name[2:]) == nil && c.InheritedFlags().Lookup(name[2:]) == nil && name != "--help" {
				return fmt.Errorf("it has no flag %s", name)
			}
		case len(name) == 2 && name[0] == '-' && unicode.IsLetter(rune(name[1])):
			if c.Flags().ShorthandLookup(name[1:]) == nil && c.InheritedFlags().ShorthandLookup(name[1:]) == nil && name != "-h" {
				return fmt.Errorf("it has no flag %s", name)
			}
		}
	}
	return nil
}
