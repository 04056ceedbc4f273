package cores

import (
	"bufio"
	_ "embed" // the program that plays the guide in C
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"muster/ivm"
)

//go:embed guide/guide.c
var guideSource []byte

// ErrNoCompiler says that the guide in C cannot be played, because this machine has no C compiler.
var ErrNoCompiler = errors.New("there is no C compiler (cc)")

// InC is a process that plays guides of the library in C, one after the other. It has the methods of a
// guide; the first error that it meets is that of Done.
type InC struct {
	Differs error // the first decision that is not that of Go, and what it was

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err error
}

// CompileInC compiles the library's guide in a folder, and starts it.
func CompileInC(dir string) (*InC, error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return nil, ErrNoCompiler
	}
	if err := errors.Join(writeAll(dir, ivm.SourcesInC), os.WriteFile(filepath.Join(dir, "guide.c"), guideSource, 0o644)); err != nil {
		return nil, err
	}
	// Only the guide is linked: the rest of its file needs the rest of the library.
	build := exec.Command(compiler, "-std=gnu11", "-O0", "-ffp-contract=off", "-ffunction-sections", "-Wl,--gc-sections", "-o", "guide", "guide.c")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the guide in C: %w: %s", err, out)
	}
	c := &InC{cmd: exec.Command(filepath.Join(dir, "guide"))}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

func writeAll(dir string, from fs.FS) error {
	return fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
}

// Close ends the process.
func (c *InC) Close() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// begin begins with a new guide.
func (c *InC) begin(items, workers int) guide {
	c.expectOK("new", strconv.Itoa(items), strconv.Itoa(workers))
	return c
}

// Next is that of a guide.
func (c *InC) Next(worker int, seconds float64) (from, to int, ok bool) {
	answer := c.ask("next", strconv.Itoa(worker), strconv.FormatFloat(seconds, 'g', -1, 64))
	if c.err != nil || answer == "none" {
		return 0, 0, false
	}
	if _, err := fmt.Sscan(answer, &from, &to); err != nil {
		c.err = fmt.Errorf("it answers %q: %w", answer, err)
	}
	return from, to, c.err == nil
}

// Lose is that of a guide.
func (c *InC) Lose(worker int) { c.expectOK("lose", strconv.Itoa(worker)) }

// Done is that of a guide.
func (c *InC) Done() error {
	if answer := c.ask("done"); c.err == nil && answer != "ok" {
		return errors.New(answer)
	}
	return c.err
}

func (c *InC) expectOK(words ...string) {
	if answer := c.ask(words...); c.err == nil && answer != "ok" {
		c.err = fmt.Errorf("it answers %q to %s", answer, words[0])
	}
}

// ask sends a line, and returns the one that answers it.
func (c *InC) ask(words ...string) string {
	if c.err != nil {
		return ""
	}
	_, err := io.WriteString(c.in, strings.Join(words, " ")+"\n")
	answer := ""
	if err == nil {
		answer, err = c.out.ReadString('\n')
	}
	if err != nil {
		c.err = fmt.Errorf("its process has ended: %w", err)
	}
	return strings.TrimSuffix(answer, "\n")
}
