package spank

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/need"
	"muster/slurm/words"
)

// reader prints what the plug-in's reader finds in each line of its input.
const reader = `
#include "muster_words.h"
int main(void)
{
	static char line[1 << 17];
	while (fgets(line, sizeof line, stdin)) {
		struct words_comment c;
		line[strcspn(line, "\n")] = 0;
		if (words_read(line, &c))
			printf("refused\n");
		else if (c.answer)
			printf("request=%d as=%ld gpus=%ld map=%s why=%s start=%llu job=%llu devices=%s grant=%s\n", c.request, c.as, c.gpus, c.mapping, c.why, (unsigned long long)c.start, (unsigned long long)c.job, c.devices, c.grant);
		else
			printf("request=%d gpus=%ld map=%s why=%s\n", c.request, c.gpus, c.mapping, c.why);
		free(c.copy);
	}
	return 0;
}
`

// The plug-in parses comments as package words does.
func TestPluginReadsWords(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Missing(t, need.Compiler, "there is no gcc")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"reader.c": reader, "muster_words.h": header} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "reader")
	if out, err := exec.Command(gcc, "-g", "-fsanitize=address,undefined", "-o", program, filepath.Join(dir, "reader.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := examples(t)
	read := exec.Command(program)
	read.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := read.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(got) != len(lines) {
		t.Fatalf("%d answers to %d lines: %s", len(got), len(lines), out)
	}
	for i, line := range lines {
		if want := asPackageReads(line); got[i] != want {
			t.Errorf("%s\n got %s\nwant %s", line, got[i], want)
		}
	}
}

// examples are the lines that package words keeps, and some that are not Muster's.
func examples(t *testing.T) []string {
	lines := []string{"", "night run", "xmuster:req rgpu=1", "muster:request", "muster:req rgpu=1048577", "muster:req rgpu=99999999999999999999999",
		"muster:req rgpu=1 muster:got 0 1 nodes=n1 rgpu=n1:65537 grant=- why=", "muster:req mem=M", "muster:req m", "muster:req muster:got 0 1 nodes=n1 rgpu=:1 grant=- why="}
	for _, name := range []string{"words.txt", "wrong.txt"} {
		text, err := os.ReadFile(filepath.Join("..", "words", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "#") {
				lines = append(lines, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	return lines
}

// asPackageReads is what the C program must print.
func asPackageReads(line string) string {
	c, err := words.Parse(line)
	if err != nil {
		return "refused"
	}
	gpus, as, mapping, why := 0, 0, "", c.Why
	if c.Request != nil {
		gpus, as, mapping = c.Request.GPUs, c.Request.As, c.Request.Terms.Mapping
	}
	if c.Answer != nil {
		var devices []string
		for _, d := range c.Answer.Devices {
			devices = append(devices, d.String())
		}
		return fmt.Sprintf("request=1 as=%d gpus=%d map=%s why=%s start=%d job=%d devices=%s grant=%s", as, gpus, mapping, c.Answer.Why, c.Answer.Start, c.Answer.Job, strings.Join(devices, ","), c.Answer.Grant)
	}
	request := 0
	if c.Request != nil {
		request = 1
	}
	return fmt.Sprintf("request=%d gpus=%d map=%s why=%s", request, gpus, mapping, why)
}
