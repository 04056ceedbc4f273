package agentcore

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/scripts"
	"muster/model"
	"muster/wire/agent"
	"muster/wire/grant"
)

// A script is lines: "config" or "restored ..." first, then events with their time;
// "#" begins a comment. Below each event, indented, stand the effects; -update
// rewrites those lines. Read the difference before you keep it.
func TestScripts(t *testing.T) { scripts.Run(t, playScript) }

type script struct {
	cfg  Config
	was  Restored
	core *Core
	out  strings.Builder
}

func playScript(t *testing.T, text string) string {
	t.Helper()
	s := &script{cfg: Config{Node: "n1", Incarnation: "x", Memory: 1 << 30, Cores: []int{0, 1, 2, 3}}}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&s.out, line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if err := s.play(words); err != nil {
			t.Fatalf("line %d: %q: %v", i+1, line, err)
		}
	}
	return s.out.String()
}

type arguments map[string]string

func (a arguments) numbers(name string) (list []int) {
	for _, w := range strings.Split(a[name], ",") {
		if n, err := strconv.Atoi(w); err == nil {
			list = append(list, n)
		}
	}
	return list
}

func (s *script) play(words []string) error {
	args := arguments{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	_, has := args["restored"]
	switch {
	case words[0] == "config":
		s.cfg.User, s.cfg.Cluster = args["user"], args["cluster"]
		s.cfg.Checkpoints, s.cfg.NoCheckpoints = args["checkpoints"], strings.ReplaceAll(args["no_checkpoints"], "_", " ")
		return nil
	case words[0] == "loan":
		s.was.Loans = append(s.was.Loans, grant.Loan{ID: words[1], Hash: grant.Hash{1}, Limit: -1})
		return nil
	case has:
		id, _ := parseTask(words[1])
		k := Known{Task: id, Cores: args.numbers("cores"), Grant: args["grant"]}
		_, k.Begun = args["begun"]
		if cause := args["stop"]; cause != "" {
			k.Stop = &agent.Stop{Task: id, Cause: agent.Cause(cause)}
		}
		if cause := args["end"]; cause != "" {
			k.End = &agent.End{Cause: agent.Cause(cause)}
		}
		s.was.Tasks = append(s.was.Tasks, k)
		return nil
	}
	now, err := time.ParseDuration(words[0])
	if err != nil {
		return err
	}
	if s.core == nil {
		var effects []Effect
		s.core, effects = New(s.cfg, now, s.was)
		s.print(effects)
	}
	e, err := event(words[1:], args)
	if err != nil {
		return err
	}
	s.print(s.core.Step(now, e))
	return nil
}

func event(words []string, args arguments) (Event, error) {
	var id agent.Task
	if len(words) > 1 {
		id, _ = parseTask(words[1])
	}
	_, has := args["begun"]
	switch words[0] {
	case "up":
		return Up{}, nil
	case "down":
		return Down{}, nil
	case "tick":
		return Tick{}, nil
	case "began":
		_, suspended := args["suspended"]
		return Began{id, suspended, args.numbers("cores")}, nil
	case "ended":
		exit, _ := strconv.Atoi(args["exit"])
		return Ended{id, agent.End{Cause: agent.Exited, Exit: exit}}, nil
	case "lost":
		return Lost{id, has, "nobody is there"}, nil
	case "failed":
		return SpoolFailed{id, "the disk is full"}, nil
	case "spool":
		return Spool{strings.ReplaceAll(args["trouble"], "_", " ")}, nil
	case "devices":
		return Devices{[]agent.Device{{Name: "GPU", Memory: 1 << 30, Speed: 1, Up: args["up"] == "yes"}}}, nil
	case "measured":
		waiting, _ := strconv.Atoi(args["waiting"])
		e := Measured{Load: &agent.Load{Waiting: waiting}, Profiles: map[agent.Task]model.Measured{}}
		for word, text := range args {
			if task, ok := parseTask(word); ok {
				seconds, _ := strconv.ParseFloat(text, 64)
				e.Profiles[task] = model.Measured{GPU: seconds}
			}
		}
		if _, only := args["only"]; only {
			e.Load = nil
		}
		return e, nil
	case "admitted":
		return Admitted{words[1], args["error"]}, nil
	case "revoked":
		return Revoked{words[1], args["error"]}, nil
	case "checkpointed":
		return Checkpointed{Task: id, Folder: args["folder"], Bytes: 100, Error: args["error"]}, nil
	case "daemon":
		return DaemonBegan{}, nil
	case "applied":
		return Configured{Settings: settings(args), InForce: settings(args), Error: strings.ReplaceAll(args["error"], "_", " ")}, nil
	case "in_force":
		return InForce{settings(args)}, nil
	case "unread": // what kind of a message it was, and of which task or loan
		u := agent.Unreadable{Kind: words[1], Err: errors.New("a name with a zero byte")}
		if len(words) > 2 {
			u.Loan = words[2]
			u.Task, _ = parseTask(words[2])
		}
		return Unread{u}, nil
	}
	m, err := message(words, id, args)
	return Heard{m}, err
}

func settings(args arguments) model.NodeSettings {
	vgpus, _ := strconv.Atoi(args["vgpus"])
	seconds, _ := strconv.ParseFloat(args["profiling"], 64)
	return model.NodeSettings{VGPUs: vgpus, Policy: args["policy"], Profiling: seconds}
}

func message(words []string, id agent.Task, args arguments) (agent.ToAgent, error) {
	number := func(name string, or int) int {
		if n, err := strconv.Atoi(args[name]); err == nil {
			return n
		}
		return or
	}
	switch words[0] {
	case "welcome":
		return agent.Welcome{Cluster: words[1], Silence: time.Minute}, nil
	case "ping":
		return agent.Ping{}, nil
	case "start":
		m := agent.Start{Task: id, Incarnation: "x", Spec: agent.Spec{User: "alice", Cores: number("cores", 1)}}
		if i := args["incarnation"]; i != "" {
			m.Incarnation = i
		}
		m.From = args["from"]
		if _, ok := args["grant"]; ok {
			m.Grant = &grant.Grant{ID: id.String()}
		}
		return m, nil
	case "stop":
		return agent.Stop{Task: id, Cause: agent.Stopped, Reason: "cancelled", Grace: time.Duration(number("grace", 30)) * time.Second}, nil
	case "signal":
		return agent.Signal{Task: id, Signal: 10}, nil
	case "suspend":
		return agent.Suspend{Task: id}, nil
	case "resume":
		return agent.Resume{Task: id}, nil
	case "checkpoint":
		return agent.Checkpoint{Task: id, Folder: args["folder"]}, nil
	case "discard":
		return agent.Discard{Folder: args["folder"]}, nil
	case "done":
		return agent.Done{Task: id}, nil
	case "lend":
		return agent.Lend{Loan: grant.Loan{ID: words[1], Hash: grant.Hash{1}, Limit: number("limit", -1)}}, nil
	case "unlend":
		return agent.Unlend{ID: words[1]}, nil
	case "limit":
		return agent.Limit{ID: words[1], Limit: number("limit", -1)}, nil
	case "configure":
		return agent.Configure{Settings: settings(args)}, nil
	case "open":
		o := agent.Open{Stream: "s", Task: id, File: args["file"]}
		if user := args["ended"]; user != "" {
			o.Ended = &agent.Written{User: user, Directory: "/home", File: "out"}
		}
		if _, ok := args["exec"]; ok {
			o.Exec = &agent.Exec{Arguments: []string{"date"}}
		}
		return o, nil
	}
	return nil, fmt.Errorf("no event %q", words[0])
}

func (s *script) print(effects []Effect) {
	for _, e := range effects {
		fmt.Fprintln(&s.out, "    ->", show(e))
	}
}

// show writes an effect as a person reads it.
func show(e Effect) string {
	switch e := e.(type) {
	case Save:
		return fmt.Sprintf("save %v cores %v", e.Start.Task, e.Cores)
	case SaveStop:
		return fmt.Sprintf("save the stop of %v", e.Stop.Task)
	case SaveEnd:
		return fmt.Sprintf("save the end of %v: %s (%s)", e.Task, e.End.Cause, e.End.Reason)
	case Mark:
		return fmt.Sprintf("mark %v begun=%v", e.Task, e.Mark.End == nil)
	case Tell:
		return fmt.Sprintf("tell %v %s", e.Task, asJSON(e.Order))
	case Send:
		return fmt.Sprintf("send %s %s", e.Message.Kind(), asJSON(e.Message))
	case Configure:
		return fmt.Sprintf("configure %v", e.Settings)
	case Stream:
		return fmt.Sprintf("stream %s of %v: %q", e.Open.Stream, e.Open.Task, e.Reason)
	case Admit:
		return fmt.Sprintf("admit %s limit %d", e.Loan.ID, e.Loan.Limit)
	}
	return strings.ToLower(strings.TrimPrefix(reflect.TypeOf(e).String(), "agentcore.")) + " " + strings.Trim(fmt.Sprintf("%v", e), "{}")
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
