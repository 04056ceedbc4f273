package rgpu

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"muster/exp/bench"
	"muster/exp/live"
	"muster/node"
	"muster/node/gateway"
	"muster/slurm"
	"muster/slurm/driver"
	"muster/slurm/fetch"
	"muster/slurm/release"
	"muster/slurm/spank"
	"muster/slurm/words"
	"muster/wire/grant"
)

// Software GPUs that stand for the paper's K20. A kernel takes as long as its operations at the
// rate, whatever the machine does: eight such GPUs together are a part of a processor.
const (
	gpuRate   = 10_000_000 // operations a second
	gpuMemory = 5 << 30
)

// lenders are the daemons of the nodes that have a GPU. They serve programs of their own node, for
// the paper's original mode, and lend the GPU to jobs on others.
type lenders struct {
	bench.Daemons
	folder  string
	prefix  string // of the daemons' sockets
	address map[string]string
	ca      string
	user    string
}

// startLenders starts a daemon for each node that has a GPU.
func startLenders(ctx context.Context, t bench.Tools, folder string, nodes []string) (*lenders, error) {
	who, err := user.Current()
	if err != nil {
		return nil, err
	}
	l := &lenders{Daemons: bench.Daemons{Tools: t}, folder: folder, prefix: "@muster-rgpu-" + rand.Text()[:8] + "-", address: map[string]string{}, user: who.Username}
	authority, _, err := gateway.OpenAuthority(folder, time.Now())
	if err != nil {
		return nil, err
	}
	certificates, err := authority.Node([]string{"127.0.0.1"}, 30)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		return nil, err
	}
	l.ca = string(text)
	for _, name := range nodes {
		if err := l.start(name, certificates); err != nil {
			l.Stop()
			return nil, err
		}
	}
	if err := l.await(ctx, nodes); err != nil {
		l.Stop()
		return nil, fmt.Errorf("%w\n%s", err, l.Logs())
	}
	return l, nil
}

func (l *lenders) socket(node string) string { return l.prefix + node }

func (l *lenders) start(name, certificates string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	l.address[name] = port
	// No spare workers and no copies for recovery: what they take would come off what is measured.
	return l.Launch(name, "node", "--child", "--name", name, "--socket", l.socket(name), "--state", filepath.Join(l.folder, name+".state"),
		"--devices", fmt.Sprintf("soft:name=K20,memory=%d,rate=%d,workers=1", gpuMemory, gpuRate), "--listen", port, "--tls-dir", certificates,
		"--vgpus", "64", "--recover", "off", "--warm", "0", "--migrate", "off", "--worker-timeout", "0s", "--grace", "1s", "--swap", "4GiB", "--log-level", "warn", "--text-log")
}

// freePort is an address that nobody listens at now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// await waits until all answer.
func (l *lenders) await(ctx context.Context, nodes []string) error {
	for deadline := time.Now().Add(time.Minute); ; {
		if err := l.Lost(); err != nil {
			return err
		}
		waiting := slices.IndexFunc(nodes, func(name string) bool { _, err := node.Ask(l.socket(name)); return err != nil })
		if waiting < 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the daemon of %s does not answer", nodes[waiting])
		}
		if err := bench.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// granter stands between the driver and Slurm: for each job that borrows GPUs it makes the grant
// that the driver's answer names, and tells the lenders of it, before Slurm hears of the placement.
// The plug-in finds the grant on the job's nodes.
type granter struct {
	driver.Engine
	lenders *lenders
	ended   string // a folder with a file for each job that has ended, by its number

	mu     sync.Mutex
	made   map[uint64]*grant.Grant
	placed map[uint64]*words.Answer
}

func (g *granter) Place(ctx context.Context, p slurm.Place) error {
	said, err := words.Parse(p.Comment)
	if err != nil {
		return err
	}
	if said.Answer != nil && len(said.Answer.Devices) > 0 {
		if err := g.grant(said.Request, said.Answer); err != nil {
			return fmt.Errorf("the grant of job %s: %w", p.Job, err)
		}
	}
	err = g.Engine.Place(ctx, p)
	if err == nil && said.Answer != nil {
		g.mu.Lock()
		g.placed[p.Job.ID] = said.Answer
		g.mu.Unlock()
	}
	return err
}

// grant makes a grant of what the answer names, and writes it where the answer says.
func (g *granter) grant(r *words.Request, a *words.Answer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.revokeEnded()
	made := &grant.Grant{ID: fmt.Sprintf("%d.%d", a.Job, a.Start), User: g.lenders.user, Secret: grant.NewCredential(), Limit: grant.AllDevices, Authority: g.lenders.ca}
	memory := uint64(0)
	if r.Mode != words.Exclusive {
		memory = uint64(r.MemoryMB) << 20
	}
	for _, d := range a.Devices {
		made.Devices = append(made.Devices, grant.Device{Node: d.Node, Address: g.lenders.address[d.Node], Device: d.Device, Memory: memory})
	}
	text, err := made.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(a.Grant, text, 0o600); err != nil {
		return err
	}
	g.made[a.Job] = made
	for _, name := range nodesOf(made) {
		if _, err := node.Admit(g.lenders.socket(name), made, made.On(name), made.Limit, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

func nodesOf(g *grant.Grant) []string {
	var names []string
	for _, d := range g.Devices {
		if !slices.Contains(names, d.Node) {
			names = append(names, d.Node)
		}
	}
	return names
}

// revokeEnded takes back what jobs had that have ended. The driver gives nothing to another job
// before Slurm says that the one before has ended, which is later.
func (g *granter) revokeEnded() {
	for id, made := range g.made {
		if _, err := os.Stat(filepath.Join(g.ended, strconv.FormatUint(id, 10))); err != nil {
			continue
		}
		for _, name := range nodesOf(made) {
			_, _ = node.RevokeGrant(g.lenders.socket(name), made.ID, "the job has ended")
		}
		delete(g.made, id)
	}
}

// plugin builds Muster's plug-in for a release into a folder, with its submit script, and adds both
// to a set-up. All jobs are then Muster's.
func plugin(ctx context.Context, s *live.Setup, t bench.Tools, r *release.Release, folder string) error {
	tree, err := fetch.Get(ctx, r, fetch.Options{})
	if err != nil {
		return err
	}
	library, script := filepath.Join(folder, spank.Library), filepath.Join(folder, "muster.lua")
	text, err := spank.Script(spank.Settings{All: true, Admins: []int{os.Getuid()}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		return err
	}
	if _, err := os.Stat(library); err != nil {
		if err := spank.Build(ctx, r, tree.Include(), library); err != nil {
			return err
		}
	}
	s.JobSubmit = spank.Hook(script) + "return slurm.SUCCESS\n"
	s.PlugStack = spank.PlugStack(library, t.Muster, "")
	return nil
}
