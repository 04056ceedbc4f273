package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"muster/campaign/content"
	"muster/campaign/vitals"
	headclient "muster/head/client"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/client"
	"muster/wire/dial"
)

// attacker is the user who sends hostile and odd content. Most systems have this user, so that some of
// what he submits runs.
const attacker = "nobody"

// headSlack is how much memory hostile content may cost the head at any time, in KiB.
const headSlack = 384 << 10

// pause is after how many pieces the sender looks whether anybody was harmed.
const pause = 25

// sender sends hostile and odd content to all doors of the cluster.
type sender struct {
	c     *campaign
	from  *content.Source
	users *http.Client // with the attacker's certificate
	base  string
	tls   *tls.Config
	dir   string
	sent  int
	since map[string]float64 // when each node's present session began, as last seen
	seen  int                // faults that had been injected then
}

// newSender makes the attacker's certificate and folder.
func (c *campaign) newSender(port, certificates string) error {
	if err := c.command("cert", certificates, "--user", attacker); err != nil {
		return err
	}
	config, err := client.LoadTLS(filepath.Join(certificates, "user-"+attacker))
	if err != nil {
		return err
	}
	s := &sender{c: c, from: content.New(c.o.Seed, uint64(c.o.Episode)<<8), tls: config, dir: filepath.Join(c.o.Dir, "odd"), since: map[string]float64{}}
	s.from.Most, s.from.Only = 128<<10, c.o.Pieces
	s.from.Directory = s.dir
	s.from.Environment = []string{markVariable + "=" + c.mark}
	if s.users, s.base, err = dial.Client(dial.Config{Head: port, TLS: config}); err != nil {
		return err
	}
	s.users.Timeout = c.o.Patience
	if err := os.MkdirAll(s.dir, 0o777); err != nil {
		return err
	}
	c.sender = s
	return os.Chmod(s.dir, 0o777) // the attacker's jobs write there
}

// send sends one piece.
func (s *sender) send() {
	s.sent++
	headIsThere := !s.c.faults.busy["head"]
	switch n := s.from.IntN(100); {
	case n < 70 && headIsThere:
		s.toHead()
	case n < 80:
		s.toSocket()
	case n < 88 || !headIsThere:
		s.toGateway()
	case n < 99:
		s.asAgent()
	default:
		s.policy()
	}
	if s.sent%pause == 0 {
		s.look()
	}
}

func (s *sender) count(k content.Kind, outcome string) {
	s.c.report.Content[k]++
	s.c.report.Outcomes[outcome]++
}

// toHead makes a request of the head, as the attacker. Whatever it is, there must be an answer.
func (s *sender) toHead() {
	piece := s.from.Request()
	request, err := http.NewRequest(piece.Method, s.base+piece.Path, bytes.NewReader(piece.Body))
	if err != nil {
		s.count(piece.Kind, "not sent")
		return
	}
	answer, err := s.users.Do(request)
	if err != nil {
		s.count(piece.Kind, "no answer")
		// A head that was just started again accepts connections soon. It may hang up on those who
		// send more than it reads.
		if len(piece.Body) < 1<<20 && !s.c.faults.headHurtWithin(10*time.Second) {
			s.c.violate("the head gives no answer to %s %.80q with %s content (%.300q): %v", piece.Method, piece.Path, piece.Kind, piece.Body, err)
		}
		return
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusInternalServerError:
		s.c.violate("the head fails (500) at %s %.80q with %s content (%.300q): %.300s", piece.Method, piece.Path, piece.Kind, piece.Body, text)
		s.count(piece.Kind, "failed")
	case answer.StatusCode < 300:
		s.count(piece.Kind, "accepted")
	default:
		s.count(piece.Kind, "refused")
	}
}

// converse sends bytes to somebody who expects others, and waits until he has answered or hung up.
func (s *sender) converse(conn net.Conn, text []byte) (answered bool) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = conn.Write(text)
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	n, _ := conn.Read(make([]byte, 1024))
	return n > 0
}

// outcome names what became of bytes that were sent.
func outcome(answered bool) string {
	if answered {
		return "answered"
	}
	return "hung up"
}

func (s *sender) machine() *machine { return s.c.machines[s.from.IntN(len(s.c.machines))] }

// toSocket sends a line to a node's socket.
func (s *sender) toSocket() {
	kind, line := s.from.Line()
	m := s.machine()
	conn, err := net.DialTimeout("unix", m.socket, time.Second)
	if err != nil {
		s.c.report.Outcomes["passed over"]++ // it is down
		return
	}
	s.count(kind, outcome(s.converse(conn, line)))
}

// toGateway sends bytes to a node's gateway, with the attacker's certificate or none.
func (s *sender) toGateway() {
	kind, text := s.from.Bytes()
	m := s.machine()
	conn, err := net.DialTimeout("tcp", m.gateway.target, time.Second)
	if err == nil && s.from.IntN(3) > 0 {
		config := s.tls.Clone()
		config.ServerName = "127.0.0.1"
		secured := tls.Client(conn, config)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		if err = secured.HandshakeContext(ctx); err != nil {
			conn.Close()
		}
		cancel()
		conn = secured
	}
	if err != nil {
		s.c.report.Outcomes["passed over"]++
		return
	}
	s.count(kind, outcome(s.converse(conn, text)))
}

// asAgent greets the head as a node that runs the jobs of a user who has none, and lies.
func (s *sender) asAgent() {
	if os.Getuid() != 0 { // only root may speak for a node at the socket
		s.c.report.Outcomes["passed over"]++
		return
	}
	kind, text := s.from.Message()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := dial.DialAgent(ctx, dial.Config{Head: "unix:" + filepath.Join(s.c.o.Dir, "head.socket")})
	if err != nil {
		s.c.report.Outcomes["passed over"]++
		return
	}
	if s.from.IntN(3) > 0 {
		hello := agent.Hello{Version: agent.Version, Node: fmt.Sprint("liar", s.from.IntN(3)), Incarnation: "x", User: "liar", Cores: 1, Memory: 1 << 30}
		if greeting, err := agent.Encode(nil, hello); err == nil {
			text = append(greeting, text...)
		}
	}
	s.count(kind, outcome(s.converse(conn, text)))
}

// policy has muster check a policy script, which must end.
func (s *sender) policy() {
	kind, text := s.from.Policy()
	file := filepath.Join(s.dir, "policy.star")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.c.o.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.c.o.Muster, "policy", "check", file)
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		s.c.violate("muster policy check does not end within %v for %.200q", s.c.o.Patience, text)
	case errors.As(err, &exit) && exit.ExitCode() > 2:
		s.c.violate("muster policy check ends with %v for %.200q", exit, text)
	case err != nil:
		s.count(kind, "refused")
		return
	}
	s.count(kind, "accepted")
}

// look checks that the head has not grown without bounds and that no node lost its session, and
// cancels what the attacker has submitted.
func (s *sender) look() {
	if s.c.faults.busy["head"] || s.c.faults.headHurtWithin(5*time.Second) {
		return
	}
	if now, err := vitals.Read(s.c.head.pid()); err == nil && now.Resident() > s.c.before.Resident()+headSlack {
		s.c.violate("the head has %d MiB of memory, and had %d MiB before odd content came", now.Resident()>>10, s.c.before.Resident()>>10)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.c.o.Patience)
	defer cancel()
	nodes, err := s.c.asks.Nodes(ctx)
	if err != nil {
		if !s.c.faults.headHurtWithin(s.c.o.Patience) {
			s.c.violate("the head does not tell others of its nodes while it is sent odd content: %v", err)
		}
		return
	}
	now := map[string]float64{}
	for _, n := range nodes {
		now[n.Name] = n.Since
	}
	for _, m := range s.c.machines {
		if was := s.since[m.name]; was != 0 && now[m.name] != was && s.seen == len(s.c.faults.hits) && len(s.c.faults.repairs) == 0 && !s.c.faults.anyHurtWithin(2*nodeTimeout) {
			s.c.violate("the session of %s ended and began again while odd content was sent, and no fault explains that", m.name)
		}
	}
	s.since, s.seen = maps.Clone(now), len(s.c.faults.hits)
	// What was accepted is to run, if it can. What cannot is cancelled.
	for end := time.Now().Add(runTime); time.Now().Before(end) && s.active(ctx) > 4; {
		time.Sleep(20 * time.Millisecond)
	}
	s.clear(ctx)
	s.from.Jobs = s.from.Jobs[:0]
	s.c.load.mu.Lock()
	for _, a := range s.c.load.all[max(0, len(s.c.load.all)-5):] {
		if a.job != 0 {
			s.from.Jobs = append(s.from.Jobs, a.job)
		}
	}
	s.c.load.mu.Unlock()
}

// runTime is how long the sender waits for the attacker's jobs to run before it cancels them.
const runTime = 2 * time.Second

// active counts the attacker's jobs that have not ended and are not kept back by themselves.
func (s *sender) active(ctx context.Context) int {
	jobs, err := s.c.asks.Jobs(ctx, headclient.Query{User: attacker, States: []api.State{api.Pending, api.Running, api.Completing}})
	if err != nil {
		return 0
	}
	n := 0
	for i := range jobs {
		if j := &jobs[i]; j.State != api.Pending || !j.Held && j.Dependency == "" && j.Reason != "BeginTime" {
			n++
		}
	}
	return n
}

// clear cancels all jobs of the attacker, and returns those that have not ended.
func (s *sender) clear(ctx context.Context) []string {
	jobs, err := s.c.asks.Jobs(ctx, headclient.Query{User: attacker})
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	asked := map[string]bool{}
	for i := range jobs {
		j := &jobs[i]
		if j.State.Over() {
			continue
		}
		id := strconv.FormatUint(j.ID, 10)
		if j.ArrayJob != 0 {
			id = strconv.FormatUint(j.ArrayJob, 10)
		}
		if !asked[id] {
			asked[id] = true
			_, err := s.c.asks.Cancel(ctx, id, "")
			left = append(left, fmt.Sprintf("job %s of the attacker does not end: %s %s on %v (cancelled: %v)", id, j.State, j.Reason, j.Nodes, err))
		}
	}
	return left
}

// clearAll waits until all jobs of the attacker have ended.
func (c *campaign) clearAll() []string {
	if c.sender == nil {
		return nil
	}
	c.sender.users.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	return c.sender.clear(ctx)
}

// others leaves out the attacker's jobs.
func others(jobs []api.Job) []api.Job {
	var list []api.Job
	for i := range jobs {
		if jobs[i].User != attacker {
			list = append(list, jobs[i])
		}
	}
	return list
}
