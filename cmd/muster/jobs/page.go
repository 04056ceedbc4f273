package jobs

import (
	"errors"
	"fmt"
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
)

func NewPage() *cobra.Command {
	var f cli.AskFlags
	var open bool
	c := &cobra.Command{
		Use:   "page [--open]",
		Short: "Print the address of the cluster's page",
		Long: `Print the address of the head's page, for your browser. It shows nodes and GPUs, the queue
with what each job waits for, jobs with their output, a chart of what ran where, what was,
and what other policies would have made of it.

The address signs one browser in as you, and is good once and for a minute: open it at
once, and give it to nobody. The browser stays signed in for twelve hours. --open has the
browser of this machine open it.` + cli.AskHelp,
		Example: "  muster page\n  muster page --open",
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := f.Open()
			if err != nil {
				return err
			}
			p, err := h.Page(c.Context())
			if err != nil {
				return err
			}
			if p.Local && !h.Local() {
				noteTunnel(c, p.Address)
			}
			if open {
				return openBrowser(p.Address)
			}
			fmt.Fprintln(c.OutOrStdout(), p.Address)
			return nil
		},
	}
	f.Add(c)
	c.Flags().BoolVar(&open, "open", false, "open it in a browser")
	return c
}

// noteTunnel tells how the page of another machine is reached that serves itself alone.
func noteTunnel(c *cobra.Command, address string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	fmt.Fprintf(c.ErrOrStderr(), "muster: note: the page can be opened on the head's machine alone: from another one through ssh -L %s:%s HEAD\n", u.Port(), u.Host)
}

// openBrowser makes the desktop's browser open an address. The address is passed in a file that
// only this user can read, because all users can see the arguments of a program.
func openBrowser(address string) error {
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	} else if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return errors.New("there is no desktop here to open a browser on: run muster page without --open, and open what it prints")
	}
	path, err := exec.LookPath(opener)
	if err != nil {
		return fmt.Errorf("%s, which opens browsers, is not installed: run muster page without --open, and open what it prints", opener)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, "muster")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file := filepath.Join(dir, "page.html")
	_ = os.Remove(file) // it may be there with another mode
	text := fmt.Sprintf("<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0;url=%s\"><title>Muster</title>\n", html.EscapeString(address))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(path, file)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("opening a browser: %w", err)
	}
	return cmd.Process.Release()
}
