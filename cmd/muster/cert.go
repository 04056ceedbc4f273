package main

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/node/gateway"
)

const certHelp = `Make what nodes and users need to know each other over the network: an authority
in DIR, if there is none yet, a folder for the node, one for the user, and one for
the head of a cluster. Each certificate says which of them it is for: that of a node
is no good as a user's, nor the other way round.
Nothing that is there is overwritten, and no file can be read by others.

A node's folder goes to the node, a user's to the user, a head's to the head. ca-key.pem stays where it is:
whoever has it can be anybody.

Without --host, --user and --head it makes a folder for this machine and one for you.`

func newCert() *cobra.Command {
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
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageErrorf("name one folder for the certificates")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if days < 1 || days > 3650 {
				return usageErrorf("--days %d: give 1 to 3650", days)
			}
			if len(hosts) == 0 && name == "" && len(heads) == 0 {
				var err error
				if hosts, name, err = thisMachine(); err != nil {
					return err
				}
			}
			return makeCertificates(c, args[0], certificates{hosts, heads, name, days})
		},
	}
	c.Flags().StringSliceVar(&hosts, "host", nil, "`names` and addresses by which the node is reached")
	c.Flags().StringSliceVar(&heads, "head", nil, "`names` and addresses by which the head is reached")
	c.Flags().StringVar(&name, "user", "", "the user's `name`, which the node's limits go by")
	c.Flags().IntVar(&days, "days", 365, "how long the certificates are good for")
	return c
}

// thisMachine is what certificates are made for where nobody says.
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
		fmt.Fprintf(out, "made %s: on %s, start muster node --listen :%s --tls-dir %s\n", folder, want.hosts[0], gatewayPort, filepath.Base(folder))
	}
	if len(want.heads) > 0 {
		folder, err := authority.Head(want.heads, want.days)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "made %s: on %s, start muster head --tls-dir %s\n", folder, want.heads[0], filepath.Base(folder))
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
