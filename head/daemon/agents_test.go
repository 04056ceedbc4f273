package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/gateway"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/client"
	"muster/wire/dial"
	"muster/wire/trust"
)

// raise raises the process's limit of open files, or skips the test.
func raise(t testing.TB, files uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < files {
		limit.Max = files // root may raise it
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		need.Missing(t, need.System, files, "files cannot be open here:", err)
	}
}

// perCertificate is how many simulated nodes share a certificate: making one for each
// would take longer than the test.
const perCertificate = 100

func nodeName(i int) string { return fmt.Sprintf("n%05d", i) }

// agentsChild is a process of simulated agents, which answer pings and end each task at once. It
// prints ready when all are connected, and lives until its input ends.
func agentsChild() {
	var count int
	var head, dir string
	if _, err := fmt.Sscan(os.Getenv("MUSTER_HEAD_TEST_AGENTS"), &count, &head, &dir); err != nil {
		panic(err)
	}
	var welcomed sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range count {
		slots <- struct{}{}
		welcomed.Go(func() {
			defer func() { <-slots }()
			as := dial.Config{Head: head}
			if dir != "-" {
				pair, pool, err := loadNode(filepath.Join(dir, "node-"+nodeName(i/perCertificate*perCertificate)))
				if err != nil {
					panic(err)
				}
				as.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}
			}
			conn, err := dial.DialAgent(context.Background(), as)
			if err != nil {
				panic(err)
			}
			text, err := agent.Encode(nil, hello(nodeName(i)))
			if err == nil {
				_, err = conn.Write(text)
			}
			if err == nil {
				_, err = agent.ReadToAgent(conn)
			}
			if err != nil {
				panic(err)
			}
			go simulate(conn)
			if os.Getenv("MUSTER_HEAD_TEST_LOADS") != "" {
				go reportLoads(conn, i)
			}
		})
	}
	welcomed.Wait()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func loadNode(dir string) (pair tls.Certificate, pool *x509.CertPool, err error) {
	if pair, err = trust.LoadPair(filepath.Join(dir, gateway.FileNode), filepath.Join(dir, gateway.FileNodeKey)); err != nil {
		return pair, nil, err
	}
	believed, err := trust.Believe(filepath.Join(dir, client.FileCA))
	if err != nil {
		return pair, nil, err
	}
	return pair, believed.RootCAs, nil
}

// manyAgents starts a process with simulated agents, and returns when all are connected.
func manyAgents(t testing.TB, count int, head, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), fmt.Sprintf("MUSTER_HEAD_TEST_AGENTS=%d %s %s", count, head, dir))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatalf("the agents were not welcome: %v", err)
	}
}

func simulate(conn net.Conn) {
	for {
		m, err := agent.ReadToAgent(conn)
		if err != nil {
			return
		}
		var answers []agent.ToHead
		switch m := m.(type) {
		case agent.Ping:
			answers = append(answers, agent.Pong{})
		case agent.Start:
			answers = append(answers, agent.Report{Task: m.Task, State: agent.Running}, agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: agent.Exited}})
		}
		for _, answer := range answers {
			text, err := agent.Encode(nil, answer)
			if err == nil {
				_, err = conn.Write(text)
			}
			if err != nil {
				return
			}
		}
	}
}

var tlsAgents = flag.Int("agents", need.Rounds(2, 10)*perCertificate, "how many agents TestManyAgentsOverTLS has")

// A thousand agents are connected to one head, and run jobs: ten thousand if the long campaigns are
// wanted.
func TestManyAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many connections")
	}
	count := need.Rounds(1000, 10_000)
	raise(t, uint64(count+1000))
	c := start(t, func(cfg *Config, _ *Options) { cfg.Core.Silence, cfg.Connections.User = 2*time.Minute, count+100 })
	before := memory()
	manyAgents(t, count, "unix:"+c.at.Socket, "-")
	t.Logf("%d agents cost the head %d bytes each", count, (memory()-before)/uint64(count))
	runJobs(t, c.user(""), count, 1000)
}

// Fewer over TLS: their handshakes cost both sides two milliseconds. The flag -agents
// asks for more.
func TestManyAgentsOverTLS(t *testing.T) {
	count := *tlsAgents
	if testing.Short() {
		count = 100
	}
	c, dir := startTLS(t, count)
	before := memory()
	manyAgents(t, count, c.at.Listen, dir)
	t.Logf("%d agents cost the head %d bytes each", count, (memory()-before)/uint64(count))
	runJobs(t, c.user(""), count, 1000)
}

// startTLS starts a head for so many agents over TLS, and makes the agents' certificates in a folder.
func startTLS(t testing.TB, count int) (c *cluster, dir string) {
	raise(t, uint64(count+1000))
	dir = t.TempDir()
	ca, _, err := gateway.OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for first := 0; first < count; first += perCertificate {
		var names []string
		for i := range min(perCertificate, count) {
			names = append(names, nodeName(first+i))
		}
		if _, err := ca.Node(names, 30); err != nil {
			t.Fatal(err)
		}
	}
	own, err := ca.Head([]string{"127.0.0.1"}, 30)
	if err != nil {
		t.Fatal(err)
	}
	c = start(t, func(cfg *Config, o *Options) {
		cfg.Core.Silence, cfg.Connections.Node = 2*time.Minute, perCertificate
		head := loadCert(t, own, "head")
		o.TLS = &tls.Config{Certificates: head.Certificates, ClientCAs: head.RootCAs}
	})
	return c, dir
}

// BenchmarkLoads measures what it costs a head that the agents of 1,000 nodes with 8 GPUs each say every
// agent.LoadPeriod, over TLS, how busy these are: an iteration is a second. Run it with -benchtime=10x.
func BenchmarkLoads(b *testing.B) {
	const count = 1000
	c, dir := startTLS(b, count)
	b.Setenv("MUSTER_HEAD_TEST_LOADS", "1")
	manyAgents(b, count, c.at.Listen, dir)
	before, began := processorTime(b), time.Now()
	for b.Loop() {
		time.Sleep(time.Second)
	}
	used, took := processorTime(b)-before, time.Since(began)
	b.ReportMetric(100*used.Seconds()/took.Seconds(), "%-of-a-core")
	b.ReportMetric(float64(used.Microseconds())/took.Seconds()*agent.LoadPeriod.Seconds()/count, "µs/report")
	var n api.Node
	if c.user("").must("GET", "/v1/nodes/"+nodeName(count-1), nil, &n); n.Load == nil {
		b.Error("the head has not heard how busy the nodes are")
	}
}

// processorTime is what this process has used.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reportLoads says every agent.LoadPeriod how busy a node is, with other numbers each time.
func reportLoads(conn net.Conn, i int) {
	time.Sleep(time.Duration(i%1000) * time.Millisecond) // no two at the same moment
	for round := 0; ; round++ {
		l := agent.Load{Assigned: 12, Waiting: round % 3, SwapIn: uint64(round) << 20, SwapOut: uint64(round) << 19}
		for d := range 8 {
			l.Use, l.Used, l.Guaranteed = append(l.Use, (round+7*d)%101), append(l.Used, round%64<<10), append(l.Guaranteed, 20<<10)
		}
		text, err := agent.Encode(nil, l)
		if err == nil {
			_, err = conn.Write(text)
		}
		if err != nil {
			return
		}
		time.Sleep(agent.LoadPeriod)
	}
}

// runJobs holds the head to running jobs on its nodes.
func runJobs(t *testing.T, u *asker, count, jobs int) {
	t.Helper()
	var nodes api.Nodes
	u.must("GET", "/v1/nodes", nil, &nodes)
	up := 0
	for _, n := range nodes.Nodes {
		if n.Connected {
			up++
		}
	}
	if up != count {
		t.Errorf("%d of %d nodes are connected", up, count)
	}
	list := make([]api.Submission, jobs)
	for i := range list {
		list[i] = command("true")
	}
	u.must("POST", "/v1/jobs", list, nil)
	for {
		var info api.Cluster
		u.must("GET", "/v1/cluster", nil, &info)
		if info.Pending+info.Running == 0 {
			break
		}
		time.Sleep(time.Millisecond) // polling, as a user does
	}
	var done api.Jobs
	u.must("GET", "/v1/history?limit=10000", nil, &done)
	completed := 0
	for _, j := range done.Jobs {
		if j.State == api.Completed {
			completed++
		}
	}
	if completed != jobs {
		t.Errorf("%d of %d jobs completed", completed, jobs)
	}
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// BenchmarkSubmissions measures how many submissions per second are accepted and on disk, over real
// connections, by the number of submissions per request.
func BenchmarkSubmissions(b *testing.B) {
	for _, k := range []struct{ clients, batch int }{{1, 1}, {64, 1}, {4, 100}, {4, 1000}} {
		b.Run(fmt.Sprintf("clients=%d/batch=%d", k.clients, k.batch), func(b *testing.B) {
			c := start(b, nil)
			list := make([]api.Submission, k.batch)
			for i := range list {
				list[i] = api.Submission{Script: "#!/bin/sh\nhostname\n", Directory: "/home/alice", Environment: os.Environ()[:min(10, len(os.Environ()))]}
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var all sync.WaitGroup
			for range k.clients {
				u := c.user("")
				all.Go(func() {
					for left.Add(-1) >= 0 {
						if k.batch == 1 {
							u.must("POST", "/v1/jobs", list[0], nil)
						} else {
							u.must("POST", "/v1/jobs", list, nil)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N*k.batch)/b.Elapsed().Seconds(), "submissions/s")
		})
	}
}

// BenchmarkRestart measures how long a head takes to restore jobs that have not ended.
func BenchmarkRestart(b *testing.B) {
	const jobs = 100_000
	c := start(b, nil)
	list := make([]api.Submission, api.MaxBatch)
	for i := range list {
		list[i] = command("true")
	}
	for range jobs / len(list) {
		c.user("").must("POST", "/v1/jobs", list, nil)
	}
	for b.Loop() {
		if err := c.stop(); err != nil {
			b.Fatal(err)
		}
		c = startIn(b, c.cfg, nil)
	}
}
