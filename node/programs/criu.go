package programs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// CRIU is the program that saves and restores processes.
type CRIU struct {
	Path string
	// Patience is how long one run may take, since CRIU has been seen to hang.
	Patience time.Duration
	// Run runs a command to its end, in place of exec.Cmd's own Run, for callers whose children are not
	// os/exec's to wait for. The command's files are open ones; its context ends when it is to be killed.
	Run func(ctx context.Context, cmd *exec.Cmd) error
}

// ErrNoCRIU says that there is none.
var ErrNoCRIU = errors.New("whole programs are saved and restored with CRIU, which is not here: install criu 4.2 or newer (scripts/get-criu gets it from Debian without installing it), and name it with --criu or MUSTER_CRIU")

// Find finds CRIU: as named, or on the path.
func Find(named string) (*CRIU, error) {
	name := named
	if name == "" {
		name = "criu"
	}
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return &CRIU{Path: path, Patience: 10 * time.Minute}, nil
	case named == "":
		return nil, ErrNoCRIU
	}
	return nil, fmt.Errorf("CRIU at %s cannot be run: %w", named, err)
}

// run runs CRIU on a folder of images. The files become its descriptors from 3 on.
func (c *CRIU) run(ctx context.Context, images, action string, args, environment []string, files []*os.File) error {
	ctx, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	log := action + ".log"
	all := append([]string{action, "-D", images, "-o", log}, args...)
	cmd := exec.CommandContext(ctx, c.Path, all...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.ExtraFiles = files
	output, err := c.output(ctx, cmd)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("CRIU did not come to an end within %v", c.Patience)
	}
	return fmt.Errorf("CRIU says no (%w): %s", err, complaint(filepath.Join(images, log), string(output)))
}

// output runs a command, and returns the beginning of what it prints.
func (c *CRIU) output(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	if c.Run == nil {
		return cmd.CombinedOutput()
	}
	printed, err := os.CreateTemp("", "criu-")
	if err != nil {
		return nil, err
	}
	defer printed.Close()
	_ = os.Remove(printed.Name())
	cmd.Stdout, cmd.Stderr = printed, printed
	err = c.Run(ctx, cmd)
	output, _ := io.ReadAll(io.NewSectionReader(printed, 0, 64<<10))
	return output, err
}

// complaint finds out why CRIU failed: the errors in its log, or what it printed.
func complaint(log, output string) string {
	var found []string
	if f, err := os.Open(log); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			_, text, ok := strings.Cut(lines.Text(), "Error (")
			_, what, _ := strings.Cut(text, "): ")
			if ok && !strings.Contains(what, "RLIMIT_NOFILE") { // harmless
				found = append(found, strings.TrimSpace(what))
			}
		}
	}
	if len(found) == 0 {
		for line := range strings.Lines(output) {
			if !strings.Contains(line, "Warn") {
				found = append(found, strings.TrimSpace(line))
			}
		}
	}
	if len(found) == 0 {
		return "it does not say why"
	}
	const most = 4
	text := strings.Join(found[:min(len(found), most)], "; ")
	if strings.Contains(text, "outside of its pid namespace") {
		text += "; start the program with setsid"
	}
	return text
}
