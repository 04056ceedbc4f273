package jobs

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/internal/strictjson"
	"muster/internal/wholefile"
	"muster/node/gateway"
	"muster/report"
	"muster/wire/agent"
)

// site is a cluster that muster cluster up has made: what its folder remembers.
type site struct {
	Hosts    []string `json:"hosts"` // as ssh knows them; the first is the head's
	SSH      string   `json:"ssh"`
	Folder   string   `json:"folder"` // on the hosts
	Port     int      `json:"port"`
	HeadPort int      `json:"head_port"`
	User     string   `json:"user"`

	dir    string
	binary string
	sum    string
	out    io.Writer
}

const siteFile = "cluster.json"

var siteLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it the folder of muster cluster up?"}

const siteHelp = `

Commands run on the hosts by ssh, as the user whom it logs in: --ssh, with options of its
own, as 'ssh -i KEY -o BatchMode=yes'; no password can be typed. DIR remembers hosts and
options, and has the authority that signs all certificates: keep it to yourself.`

// NewClusterUp is muster cluster up.
func NewClusterUp() *cobra.Command {
	var s site
	c := &cobra.Command{
		Use:   "up [HOST...] [--dir DIR]",
		Short: "Make a cluster of hosts by ssh: certificates, a head, nodes",
		Long: `Make a cluster of hosts by ssh: copy this muster to each, make certificates, start the head
on the first host and a node on all of them, and wait until all nodes are connected. Hosts
are as n[1-4] or admin@gpu1; nodes have their names without the user.

What is there already stays: a second run starts what does not run, adds hosts that are
new, and has another version of muster take over, first on the head and then on one node
after the other; jobs go on meanwhile. Without HOST it takes the hosts of the last time.

A node of root runs the jobs of all users, another those of its user. The processes survive
the logout, and not the host: run it again after a reboot, or install services as docs/head.md
says. Everything is in --folder of each host: bin, certificates, logs, and head.yaml,
which is yours to change (muster head reload).` + siteHelp,
		Example: `  muster cluster up root@login root@gpu[1-4]
  muster cluster up                                   # mend what does not run
  muster cluster up --ssh 'ssh -i key' gpu[1-2]`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return s.up(c, args) },
	}
	s.flags(c)
	flags := c.Flags()
	flags.StringVar(&s.SSH, "ssh", "ssh -o BatchMode=yes", "the `command` that runs commands on a host")
	flags.StringVar(&s.Folder, "folder", "", "the `folder` on each host (default: /opt/muster for root, otherwise .muster in the home directory)")
	flags.IntVar(&s.Port, "port", 9421, "the `port` at which nodes serve each other")
	flags.IntVar(&s.HeadPort, "head-port", 9422, "the `port` of the head")
	flags.StringVar(&s.binary, "binary", "", "the muster to copy, a `file` with lib beside it (default: this one)")
	return c
}

// NewClusterDown is muster cluster down.
func NewClusterDown() *cobra.Command {
	var s site
	c := &cobra.Command{
		Use:   "down [--dir DIR]",
		Short: "Stop the head and the nodes that muster cluster up has started",
		Long: `Stop the head and the nodes that muster cluster up has started. What the head knows stays on
its disk: jobs that wait are there again after the next muster cluster up. Programs that use
GPUs of the nodes end; cancel jobs first if they must not go on.` + siteHelp,
		Example: "  muster cluster down",
		Args:    cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			known, err := s.known()
			if err != nil {
				return err
			}
			if len(known.Hosts) == 0 {
				return fmt.Errorf("%s is not the folder of a cluster: muster cluster up makes one (--dir)", s.dir)
			}
			known.out = c.ErrOrStderr()
			return known.down(c.Context())
		},
	}
	s.flags(c)
	return c
}

func (s *site) flags(c *cobra.Command) {
	dir := "muster-cluster"
	if config, err := os.UserConfigDir(); err == nil {
		dir = filepath.Join(config, "muster", "cluster")
	}
	c.Flags().StringVar(&s.dir, "dir", dir, "the `folder` on this machine that remembers the cluster")
}

// known is what the folder remembers; one without hosts if that is nothing.
func (s *site) known() (*site, error) {
	k := &site{dir: s.dir}
	text, err := siteLimit.ReadFile(filepath.Join(s.dir, siteFile))
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = strictjson.Decode(text, k)
	}
	return k, err
}

// nameOf is the name of a node, without the user whom ssh logs in.
func nameOf(host string) string { return host[strings.LastIndex(host, "@")+1:] }

// take takes over hosts and settings of the last time.
func (s *site) take(c *cobra.Command, args []string) error {
	asked, err := headclient.NodeNames(args)
	if err != nil {
		return err
	}
	known, err := s.known()
	if err != nil {
		return err
	}
	s.Hosts = known.Hosts
	if len(known.Hosts) > 0 {
		for name, take := range map[string]func(){
			"ssh": func() { s.SSH = known.SSH }, "folder": func() { s.Folder = known.Folder }, "port": func() { s.Port = known.Port }, "head-port": func() { s.HeadPort = known.HeadPort },
		} {
			if !c.Flags().Changed(name) {
				take()
			}
		}
	}
	for _, host := range asked {
		if err := agent.CheckNodeName(nameOf(host)); err != nil || strings.HasPrefix(host, "-") {
			return cli.UsageErrorf("%q is no host", host)
		}
		if !slices.ContainsFunc(s.Hosts, func(h string) bool { return nameOf(h) == nameOf(host) }) {
			s.Hosts = append(s.Hosts, host)
		}
	}
	if len(s.Hosts) == 0 {
		return cli.UsageErrorf("give the hosts, the head's first, as login gpu[1-4]")
	}
	return nil
}

func (s *site) up(c *cobra.Command, args []string) error {
	if err := s.take(c, args); err != nil {
		return err
	}
	s.out = c.ErrOrStderr()
	ctx := c.Context()
	files, err := s.files()
	if err != nil {
		return err
	}
	probed, err := s.each(s.Hosts, func(host string) (string, error) { return s.run(ctx, host, s.script(probeScript), nil) })
	if err != nil {
		return err
	}
	if err := s.chooseUser(probed); err != nil {
		return err
	}
	if err := s.certify(); err != nil {
		return err
	}
	_, err = s.each(s.Hosts, func(host string) (string, error) {
		return "", s.copyTo(ctx, host, files, strings.Contains(probed[host], "sum "+s.sum+"\n"))
	})
	if err != nil {
		return err
	}
	// The head first, then the nodes in turn: all of them are never away at a time.
	if err := s.begin(ctx, s.Hosts[0], "head", s.headArgs()); err != nil {
		return err
	}
	for _, host := range s.Hosts {
		if err := s.begin(ctx, host, "node", s.nodeArgs(host)); err != nil {
			return err
		}
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "export MUSTER_HEAD=%s MUSTER_TLS_DIR=%s\n", s.headAddress(), quoted(s.userDir()))
	fmt.Fprintln(c.ErrOrStderr(), "All nodes are up. With the line above, here and in your shell's profile: muster nodes; muster submit --gres=gpu:1 ...; muster page")
	return nil
}

// files finds what is copied to every host, and its checksum.
func (s *site) files() (files map[string]string, err error) {
	if s.binary == "" {
		if s.binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	files = map[string]string{"bin/muster": s.binary}
	libs, err := filepath.Glob(filepath.Join(filepath.Dir(s.binary), "lib", "*"))
	for _, lib := range libs {
		if info, err := os.Stat(lib); err == nil && info.Mode().IsRegular() {
			files["bin/lib/"+filepath.Base(lib)] = lib
		}
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := os.Open(files[name])
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(sum, name)
		_, err = io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	s.sum = hex.EncodeToString(sum.Sum(nil))
	return files, err
}

// chooseUser decides whose certificate is made: jobs on nodes of a user who is not root must be his.
func (s *site) chooseUser(probed map[string]string) error {
	who, err := user.Current()
	if err != nil {
		return err
	}
	s.User = who.Username
	for _, host := range s.Hosts {
		var uid int
		var name string
		if _, err := fmt.Sscanf(probed[host], "user %d %s\n", &uid, &name); err != nil {
			return fmt.Errorf("%s: it answers %.80q: can ssh run commands there?", host, probed[host])
		}
		switch {
		case uid == 0:
		case name == "root" || strings.ContainsAny(name, "/\\=,") || strings.HasPrefix(name, "."): // a certificate is made for it, which counts everywhere
			return fmt.Errorf("%s: ssh logs in as user %d, who is called %.80q there: no certificate is made for that name", host, uid, name)
		default:
			s.User = name
		}
	}
	return nil
}

func (s *site) userDir() string { return filepath.Join(s.dir, "user-"+s.User) }

// certify makes the certificates that are missing, and remembers the cluster.
func (s *site) certify() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	authority, _, err := gateway.OpenAuthority(s.dir, time.Now())
	if err != nil {
		return err
	}
	var failed error
	once := func(folder string, make func() (string, error)) {
		if _, err := os.Stat(filepath.Join(s.dir, folder)); err == nil || failed != nil {
			return
		}
		_, failed = make()
	}
	for i, host := range s.Hosts {
		name := nameOf(host)
		if i == 0 {
			once(folderOf("head", name), func() (string, error) { return authority.Head(unique(name, "localhost"), certDays) })
		}
		once(folderOf("node", name), func() (string, error) { return authority.Node([]string{name}, certDays) })
	}
	once("user-"+s.User, func() (string, error) { return authority.User(s.User, certDays) })
	if failed != nil {
		return failed
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.Replace(filepath.Join(s.dir, siteFile), append(text, '\n'), 0o600)
}

// certDays is how long the certificates are valid.
const certDays = 3650

func folderOf(kind, name string) string { return kind + "-" + strings.ReplaceAll(name, ":", "_") }

func unique(names ...string) []string { return slices.Compact(names) }

// copyTo copies what a host needs. The program is not copied again if it is there.
func (s *site) copyTo(ctx context.Context, host string, files map[string]string, there bool) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(name, path string, mode int64) error {
		text, err := os.ReadFile(path)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), ModTime: time.Unix(0, 0)})
		}
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	kinds := []string{"node"}
	if host == s.Hosts[0] {
		kinds = append(kinds, "head")
	}
	for _, kind := range kinds {
		paths, err := filepath.Glob(filepath.Join(s.dir, folderOf(kind, nameOf(host)), "*.pem"))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := add(kind+".tls/"+filepath.Base(path), path, 0o600); err != nil {
				return err
			}
		}
	}
	if !there {
		fmt.Fprintf(s.out, "%s: copying muster\n", host)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := add("new/"+strings.TrimPrefix(name, "bin/"), files[name], 0o755); err != nil {
				return err
			}
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err := s.run(ctx, host, s.script(copyScript), &archive)
	return err
}

func (s *site) headAddress() string {
	return net.JoinHostPort(nameOf(s.Hosts[0]), strconv.Itoa(s.HeadPort))
}

// listenAt is where a host listens: at its address if it is named by one, otherwise at all of them.
func listenAt(host string, port int) string {
	if ip := net.ParseIP(nameOf(host)); ip != nil {
		return net.JoinHostPort(ip.String(), strconv.Itoa(port))
	}
	return ":" + strconv.Itoa(port)
}

func (s *site) headArgs() []string {
	return []string{"head", "--config", "head.yaml", "--tls-dir", "head.tls", "--listen", listenAt(s.Hosts[0], s.HeadPort), "--state", "head.state"}
}

func (s *site) nodeArgs(host string) []string {
	return []string{
		"node", "--name", nameOf(host), "--tls-dir", "node.tls", "--listen", listenAt(host, s.Port), "--head", s.headAddress(), "--peers", "head",
		"--state", "node.state", "--spool", "node.spool",
	}
}

// begin starts a daemon on a host, unless it runs as it should.
func (s *site) begin(ctx context.Context, host, name string, args []string) error {
	words := []string{name}
	for _, a := range args {
		words = append(words, quoted(a))
	}
	said, err := s.run(ctx, host, s.script(beginScript+"begin "+strings.Join(words, " ")+"\n"), nil)
	if said = strings.TrimSpace(said); said != "" {
		fmt.Fprintf(s.out, "%s: %s\n", host, said)
	}
	return err
}

// down stops everything, the head last: it hears that the nodes go.
func (s *site) down(ctx context.Context) error {
	for _, name := range []string{"node", "head"} {
		hosts := s.Hosts
		if name == "head" {
			hosts = hosts[:1]
		}
		said, err := s.each(hosts, func(host string) (string, error) {
			return s.run(ctx, host, s.script(beginScript+"end "+name+" TERM\n"), nil)
		})
		for _, host := range hosts {
			if text := strings.TrimSpace(said[host]); text != "" {
				fmt.Fprintf(s.out, "%s: %s\n", host, text)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// upWithin is how long nodes may take to connect.
const upWithin = 4 * time.Minute

// await waits until all nodes are connected.
func (s *site) await(ctx context.Context) error {
	h, err := headclient.Open(s.headAddress(), s.userDir())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, upWithin)
	defer cancel()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		missing := slices.Clone(s.Hosts)
		list, err := h.AllNodes(ctx)
		for _, n := range list.Nodes {
			missing = slices.DeleteFunc(missing, func(host string) bool { return n.Connected && nameOf(host) == n.Name })
		}
		if err == nil && len(missing) == 0 {
			return nil
		}
		refused := ""
		for _, n := range list.Refused {
			refused += fmt.Sprintf("; the head refuses node %s: %s", n.Name, report.Printable(n.Reason))
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("the head at %s does not answer: %w; its log is head.log in the cluster's folder there", s.headAddress(), err)
			}
			return fmt.Errorf("not connected: %s%s; their logs are node.log in the cluster's folder there", strings.Join(missing, ", "), refused)
		case <-again.C:
		}
	}
}

// abreast is on how many hosts something is done at a time.
const abreast = 32

// each does something for each host, and names the hosts where it failed.
func (s *site) each(hosts []string, do func(host string) (string, error)) (map[string]string, error) {
	said, errs, places := make([]string, len(hosts)), make([]error, len(hosts)), make(chan struct{}, abreast)
	var all sync.WaitGroup
	for i, host := range hosts {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			said[i], errs[i] = do(host)
		})
	}
	all.Wait()
	by := map[string]string{}
	for i, host := range hosts {
		by[host] = said[i]
	}
	return by, errors.Join(errs...)
}

// run runs a script on a host, and returns what it writes.
func (s *site) run(ctx context.Context, host, script string, input io.Reader) (string, error) {
	words := strings.Fields(s.SSH)
	if len(words) == 0 {
		return "", cli.UsageErrorf("--ssh is empty: give a command, as ssh")
	}
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], host, "sh -c "+quoted(script))...)
	cmd.Stdin = cmp.Or(input, io.Reader(strings.NewReader("")))
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", host, err, report.Printable(strings.TrimSpace(wrong.String())))
	}
	return out.String(), nil
}

// quoted is a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// script is a script that begins in the cluster's folder of the host.
func (s *site) script(body string) string {
	return "set -e\numask 077\nfolder=" + quoted(s.Folder) + folderScript + "sum=" + s.sum + "\nadmin=" + quoted(s.User) + "\n" + strings.TrimSpace(body) + "\n"
}

// folderScript chooses the folder if none was given. Where root's jobs run as others these must reach it.
const folderScript = `
if [ -z "$folder" ]; then
  if [ "$(id -u)" = 0 ]; then folder=/opt/muster; else folder=$HOME/.muster; fi
fi
`

const probeScript = `
echo "user $(id -u) $(id -un)"
cat "$folder/bin/sum" 2>/dev/null || true
`

// copyScript unpacks. The program gets its place by a rename, since an earlier one may run.
const copyScript = `
mkdir -p "$folder"
cd "$folder"
rm -rf new
tar xf -
chmod 711 .
if [ -d new ]; then
  echo "sum $sum" >new/sum
  chmod -R a+rX new
  rm -rf old
  if [ -d bin ]; then mv bin old; fi
  mv new bin
  rm -rf old
fi
[ -e head.yaml ] || [ ! -d head.tls ] || printf 'admins: [%s]\n' "$admin" >head.yaml
`

// beginScript has functions: begin NAME ARGUMENT... starts a daemon unless that very one runs; end NAME SIGNAL stops
// it. A process is a daemon of this folder if its file is there, whatever has its number now.
const beginScript = `
cd "$folder"
here=$(pwd -P)
running() {
  pid=$(cat "$1.pid" 2>/dev/null) || return 1
  case $(readlink "/proc/$pid/exe") in "$here"/*) return 0 ;; esac
  return 1
}
end() {
  running "$1" || return 0
  kill "-$2" "$pid" || true
  tries=0
  while running "$1"; do
    tries=$((tries + 1))
    if [ $tries -gt 1200 ]; then echo "$1, process $pid, does not stop" >&2; exit 1; fi
    sleep 0.1
  done
  rm -f "$1.pid"
  echo "$1 stopped"
}
begin() {
  name=$1
  shift
  want=$(cat bin/sum; echo "$@")
  if running "$name" && [ "$want" = "$(cat "$name.as")" ]; then return 0; fi
  end "$name" USR2
  setsid "$here/bin/muster" "$@" >>"$name.log" 2>&1 </dev/null &
  echo $! >"$name.pid"
  echo "$want" >"$name.as"
  sleep 0.3
  if ! kill -0 $! 2>/dev/null; then
    rm -f "$name.pid"
    echo "$name ends at once: $(tail -n 1 "$name.log")" >&2
    exit 1
  fi
  echo "$name started"
}
`
