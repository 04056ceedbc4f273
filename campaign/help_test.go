package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// --help lists all options, also those that the script takes itself.
func TestHelpListsOptions(t *testing.T) {
	defer func(was *flag.FlagSet) { flag.CommandLine = was }(flag.CommandLine)
	flag.CommandLine = flag.NewFlagSet("chaos", flag.ContinueOnError)
	var out strings.Builder
	if status := run([]string{"--help"}, &out); status != 0 {
		t.Errorf("status %d", status)
	}
	for _, option := range []string{"--build", "--put-back [NAME]", "--faults N", "--kinds KINDS", "--cluster", "--content", "--put-back"} {
		if !strings.Contains(out.String(), "  "+option) {
			t.Errorf("%s is not listed:\n%s", option, out.String())
		}
	}
	flag.VisitAll(func(f *flag.Flag) {
		if !strings.Contains(out.String(), "  --"+f.Name) {
			t.Errorf("--%s is not listed:\n%s", f.Name, out.String())
		}
	})
}

// The script need not build all of Muster to say how it is used.
func TestHelpOfTheScript(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("../scripts/chaos")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"scripts/chaos": string(text),
		"tools/make":    "#!/bin/sh\nexit 1\n",
		"tools/go":      "#!/bin/sh\nmkdir -p bin\necho 'echo asked \"$@\"' > bin/chaos\nchmod +x bin/chaos\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, option := range []string{"--help", "-h"} {
		c := exec.Command("bash", filepath.Join(dir, "scripts", "chaos"), option)
		c.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "tools")+":"+os.Getenv("PATH"))
		if out, err := c.CombinedOutput(); err != nil || string(out) != "asked "+option+"\n" {
			t.Errorf("%s: %q, %v", option, out, err)
		}
	}
}
