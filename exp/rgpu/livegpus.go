package rgpu

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"muster/exp/bench"
	"muster/exp/live"
	"muster/node/gateway"
	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/fetch"
	"muster/slurm/lenders"
	"muster/slurm/release"
	"muster/slurm/spank"
	"muster/wire/client"
)

// Software GPUs stand in for the paper's K20. One with a fixed rate paces each kernel by its number
// of operations, whatever the speed of this machine; eight of them together need a part of one
// processor.
const (
	gpuRate   = 10_000_000 // operations a second
	gpuMemory = 5 << 30
)

// gpus are the daemons of the nodes that have a GPU. In the paper's original mode they serve the
// programs of their own node. In the other modes they connect to the driver, which lends their GPUs
// to jobs.
type gpus struct {
	bench.Daemons
	prefix  string // of the daemons' sockets
	lending *driver.Lending
}

// startGPUs starts a daemon for each of the nodes, with their files in a folder.
func startGPUs(ctx context.Context, t bench.Tools, folder string, nodes []string) (*gpus, error) {
	g := &gpus{Daemons: bench.Daemons{Tools: t}, prefix: "@muster-rgpu-" + rand.Text()[:8] + "-"}
	err := g.start(ctx, folder, nodes)
	if err != nil {
		g.stop()
		return nil, fmt.Errorf("%w\n%s", err, g.Logs())
	}
	return g, nil
}

func (g *gpus) start(ctx context.Context, folder string, nodes []string) error {
	authority, _, err := gateway.OpenAuthority(folder, time.Now())
	if err != nil {
		return err
	}
	certificates, err := authority.Node([]string{"127.0.0.1"}, 30)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(folder, client.FileCA))
	if err != nil {
		return err
	}
	grants := filepath.Join(folder, "grants")
	if err := os.Mkdir(grants, 0o755); err != nil {
		return err
	}
	agents := "unix:" + g.socket("driver")
	known, err := lenders.Listen(lenders.Config{Address: agents, Cluster: "slurm"})
	if err != nil {
		return err
	}
	g.lending = &driver.Lending{Nodes: known, Folder: grants, Authority: string(ca)}
	for _, name := range nodes {
		port, err := bench.Loopback().Near.FreePort()
		if err != nil {
			return err
		}
		if err := g.LaunchNode(name, g.socket(name), "--name", name, "--state", filepath.Join(folder, name+".state"), "--head", agents, "--spool", filepath.Join(folder, name+".spool"),
			"--devices", fmt.Sprintf("soft:name=K20,memory=%d,rate=%d,workers=1", int64(gpuMemory), gpuRate), "--listen", port, "--tls-dir", certificates, "--vgpus", "64"); err != nil {
			return err
		}
	}
	return g.await(ctx, len(nodes))
}

func (g *gpus) socket(node string) string { return g.prefix + node }

func (g *gpus) stop() {
	_ = g.Stop()
	if g.lending != nil {
		g.lending.Nodes.Close()
	}
}

// await waits until the driver knows the given number of lending nodes.
func (g *gpus) await(ctx context.Context, want int) error {
	for deadline := time.Now().Add(time.Minute); ; {
		if err := g.Lost(); err != nil {
			return err
		}
		list, _ := g.lending.Nodes.Nodes()
		if len(list) == want {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d daemons have come up", len(list), want)
		}
		if err := bench.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// plugin builds Muster's plug-in for a release of Slurm into a folder, writes the submit script
// there, and adds both to a set-up. All jobs are then placed by Muster.
func plugin(ctx context.Context, s *live.Setup, g *gpus, r *release.Release, folder string) error {
	tree, err := fetch.Get(ctx, r, fetch.Options{})
	if err != nil {
		return err
	}
	library, script := filepath.Join(folder, spank.Library), filepath.Join(folder, "muster.lua")
	text, err := spank.Script(spank.Settings{All: true, Admins: []int{emulate.UserID(emulate.Options{})}})
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
	s.Lending = g.lending
	s.JobSubmit = spank.Hook(script) + "return slurm.SUCCESS\n"
	s.PlugStack = spank.PlugStack(library, g.Tools.Muster, g.socket("%n"))
	return nil
}
