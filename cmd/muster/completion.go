package main

import (
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/model"
)

const completionHelp = `Print a script that makes a shell complete the commands, flags and presets of Muster.

bash, for you alone (needs the bash-completion package):
  mkdir -p ~/.local/share/bash-completion/completions
  muster completion bash > ~/.local/share/bash-completion/completions/muster

bash, for all users:
  muster completion bash > /etc/bash_completion.d/muster

zsh (a folder of $fpath; compinit must run in ~/.zshrc):
  muster completion zsh > "${fpath[1]}/_muster"

fish:
  muster completion fish > ~/.config/fish/completions/muster.fish

It takes effect in the next shell.`

var shells = []string{"bash", "zsh", "fish"}

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print a script for completion in the shell",
		Long:      completionHelp,
		Example:   "  source <(muster completion bash)",
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.UsageErrorf("name one shell: %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			out := c.OutOrStdout()
			switch args[0] {
			case "bash":
				return c.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return c.Root().GenZshCompletion(out)
			case "fish":
				return c.Root().GenFishCompletion(out, true)
			}
			if near := model.Nearest(args[0], shells); near != "" {
				return cli.UsageErrorf("there is no completion for %q: did you mean %s?", args[0], near)
			}
			return cli.UsageErrorf("there is no completion for %q: it is one of %s", args[0], strings.Join(shells, ", "))
		},
	}
}
