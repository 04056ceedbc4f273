package programs

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/node/gateway"
	"muster/node/nodefile"
	"muster/report"
)

const certHelp = `Make what nodes and users need to know each other over the network: an authority
in DIR, if there is none yet, a folder for the node, one for the user, and one for
the head of a cluster. Each certificate says which of them it is for: that of a node
is no good as a user's, nor the other way round.
Nothing that is there is overwritten, and no file can be read by others.

A node's folder goes to the node, a user's to the user, a head's to the head. ca-key.pem stays where it is:
whoever has it can be anybody.

All names of --host are names of one node: make the next node's certificate with
another muster cert, in the same DIR. The same holds for --head.

Without --host, --user and --head it makes a folder for this machine and one for you.`

func NewCert() *cobra.Command {
	var hosts, heads []string
	var name string
	var days int
	c := &cobra.Command{
		Use:   "cert DIR [--host NAME|ADDRESS,...] [--user NAME] [--head NAME|ADDRESS,...] [--days N]",
		Short: "Make certificates for nodes, users and heads",
		Long:  certHelp,
		Example: `  muster cert certs
  muster cert certs --host gpu1.example.org,10.0.0.7
  muster cert certs --user alice --days 90
  muster cert certs --head head.example.org`,
		Args: oneFolder,
		RunE: func(c *cobra.Command, args []string) error {
			if days < 1 || days > 3650 {
				return cli.UsageErrorf("--days %d: give 1 to 3650", days)
			}
			// An empty value, as of a variable that is not set, must not mean this user or machine:
			// that may be root, who administers every head.
			given := false
			for flag, empty := range map[string]bool{"host": len(hosts) == 0, "user": name == "", "head": len(heads) == 0} {
				if !c.Flags().Changed(flag) {
					continue
				}
				if given = true; empty {
					return cli.UsageErrorf("--%s is empty: give a name, or leave --%s out", flag, flag)
				}
			}
			if !given {
				var err error
				if hosts, name, err = thisMachine(); err != nil {
					return err
				}
			}
			return makeCertificates(c, args[0], certificates{hosts, heads, name, days})
		},
	}
	c.AddCommand(newCertList(), newCertRevoke())
	c.Flags().StringSliceVar(&hosts, "host", nil, "`names` and addresses by which one node is reached")
	c.Flags().StringSliceVar(&heads, "head", nil, "`names` and addresses by which one head is reached")
	c.Flags().StringVar(&name, "user", "", "the user's `name`, which the node's limits go by")
	c.Flags().IntVar(&days, "days", 365, "how long the certificates are good for")
	return c
}

const certListHelp = `List the certificates that the authority in DIR made, with their numbers, how long they are
good for, and which were revoked.`

func newCertList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list DIR [--json]",
		Short:   "List the certificates that an authority made",
		Long:    certListHelp,
		Example: "  muster cert list certs",
		Args:    oneFolder,
		RunE: func(c *cobra.Command, args []string) error {
			authority, err := gateway.ExistingAuthority(args[0], time.Now())
			if err != nil {
				return err
			}
			list, err := authority.List()
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(c, map[string]any{"certificates": list})
			}
			t := &report.Table{Columns: []report.Column{{Name: "Name"}, {Name: "Number"}, {Name: "Until"}, {Name: "State"}}}
			for _, each := range list {
				t.Rows = append(t.Rows, []string{each.Name, each.Serial, each.Until.UTC().Format(time.DateOnly), each.Worth(time.Now())})
			}
			return cli.WriteTable(c.OutOrStdout(), t)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

const certRevokeHelp = `Make certificates of the authority in DIR count no more: those of a folder's name, as
muster cert list shows them, or the one with a number.

The authority signs a list of them, revoked.pem, in DIR and in the folders of nodes and
heads that are still there. Copy it beside ca.pem on every node and head: they read it
when it changes, refuse who comes with such a certificate from then on, and end the
connections of those who came before, with the reason.`

func newCertRevoke() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke DIR NAME|NUMBER...",
		Short:   "Make certificates count no more",
		Long:    certRevokeHelp,
		Example: "  muster cert revoke certs user-alice\n  scp certs/revoked.pem gpu1:/etc/muster/node/",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.UsageErrorf("name the authority's folder, and what to revoke: muster cert list DIR shows that")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			authority, err := gateway.ExistingAuthority(args[0], time.Now())
			if err != nil {
				return err
			}
			revoked, written, err := authority.Revoke(args[1:])
			if err != nil {
				return err
			}
			for _, each := range revoked {
				fmt.Fprintf(c.OutOrStdout(), "revoked %s, number %s\n", each.Name, each.Serial)
			}
			fmt.Fprintf(c.OutOrStdout(), "wrote %s: copy it beside ca.pem on every node and head\n", strings.Join(written, ", "))
			return nil
		},
	}
}

func oneFolder(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.UsageErrorf("name one folder for the certificates")
	}
	return nil
}

// thisMachine is the name that certificates are made for by default.
func thisMachine() (hosts []string, name string, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, "", fmt.Errorf("asking for the host's name (give --host): %w", err)
	}
	who, err := user.Current()
	if err != nil {
		return nil, "", fmt.Errorf("asking for the user's name (give --user): %w", err)
	}
	return []string{host, "localhost", "127.0.0.1", "::1"}, who.Username, nil
}

// certificates is what to make.
type certificates struct {
	hosts, heads []string
	user         string
	days         int
}

func makeCertificates(c *cobra.Command, dir string, want certificates) error {
	out := c.OutOrStdout()
	authority, made, err := gateway.OpenAuthority(dir, time.Now())
	if err != nil {
		return err
	}
	if made {
		fmt.Fprintf(out, "made an authority: keep %s to yourself\n", filepath.Join(dir, gateway.FileCAKey))
	}
	host := "HOST"
	if len(want.hosts) > 0 {
		host = want.hosts[0]
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		folder, err := authority.Node(want.hosts, want.days)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "made %s for %s: on %s, start muster node --listen :%s --tls-dir %s\n", folder, strings.Join(want.hosts, ", "), want.hosts[0], nodefile.GatewayPort, filepath.Base(folder))
	}
	if len(want.heads) > 0 {
		folder, err := authority.Head(want.heads, want.days)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "made %s for %s: on %s, start muster head --tls-dir %s\n", folder, strings.Join(want.heads, ", "), want.heads[0], filepath.Base(folder))
	}
	if want.user != "" {
		folder, err := authority.User(want.user, want.days)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "made %s: %s runs programs with muster run --node %s --tls-dir %s -- PROGRAM\n", folder, want.user, host, filepath.Base(folder))
	}
	return nil
}
