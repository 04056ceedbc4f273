package vgpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/scripts"
)

// A script is lines: "config", "device" and "limit" first, then events with
// their time; "#" begins a comment. Below each event, indented, stand the
// effects and then the queues; -update rewrites those lines. Read the
// difference before you keep it.
func TestScripts(t *testing.T) { scripts.Run(t, playScript) }

type script struct {
	cfg  Config
	core *Core
	out  strings.Builder
}

func playScript(t *testing.T, text string) string {
	t.Helper()
	s := &script{}
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

func (s *script) play(words []string) (err error) {
	args := arguments{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			args[k] = v
		}
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	switch words[0] {
	case "config":
		policy, err := ParsePolicy(args.text("policy", "fcfs"))
		s.cfg.Policy = policy
		s.cfg.MaxIdle, s.cfg.MinResidence = args.time("idle"), args.time("residence")
		s.cfg.GrowWait, s.cfg.Period = args.time("growwait"), args.time("period")
		s.cfg.MaxPasses, s.cfg.MaxWait = int(args.number("passes")), args.time("wait")
		s.cfg.SlotLimit = int(args.number("slots"))
		s.cfg.Quantum = args.time("quantum")
		s.cfg.MoveStep = args.number("step")
		s.cfg.Migrate, s.cfg.MoveBandwidth, s.cfg.MoveCost = args["migrate"] != "", args.number("bandwidth"), args.time("movecost")
		return err
	case "limit":
		s.cfg.SlotLimits = map[string]int{args.text("user", ""): int(args.number("slots"))}
		return nil
	case "device":
		s.cfg.Devices = append(s.cfg.Devices, args.device())
		return nil
	}
	if s.core == nil {
		if s.core, err = New(s.cfg); err != nil {
			return err
		}
	}
	now, err := time.ParseDuration(words[0])
	if err != nil {
		return err
	}
	effects, err := s.event(now, words[1], words[2:], args)
	for _, e := range effects {
		fmt.Fprintln(&s.out, "    ->", e)
	}
	s.queues()
	return err
}

// event plays one event; several clients' numbers stand for one event each.
func (s *script) event(now Time, name string, words []string, args arguments) (all []Effect, err error) {
	c := s.core
	switch name {
	case "tick":
		return c.Step(now, Tick{}), nil
	case "next": // ticks when the core wants it, until something happens
		for at, ok := c.Next(); ok && at <= now; at, ok = c.Next() {
			if effects := c.Step(at, Tick{}); len(effects) > 0 {
				fmt.Fprintf(&s.out, "    at %v\n", at)
				return effects, nil
			}
		}
		return nil, nil
	}
	if e := deviceEvent(name, args); e != nil {
		return s.tell(now, e), nil
	}
	switch name {
	case "configure":
		policy, err := ParsePolicy(args.text("policy", "fcfs"))
		return s.tell(now, Configure{Policy: policy, MaxIdle: args.time("idle"), SlotLimit: int(args.number("slots")), Migrate: args["migrate"] != "", Quantum: args.time("quantum")}), err
	case "admit":
		e := Admit{Grant: GrantID(args.text("grant", "")), Limit: int(args.signed("limit", -1))}
		for _, share := range strings.Split(args["shares"], ",") {
			parts := append(strings.Split(share, ":"), "", "")
			memory, beyond, _ := strings.Cut(parts[1], "+")
			s := Share{Device: DeviceID(arguments{"n": parts[0]}.number("n")), Memory: arguments{"n": memory}.number("n"), Beyond: arguments{"n": beyond}.number("n")}
			if parts[2] != "" {
				if err := s.Reach.UnmarshalText([]byte(parts[2])); err != nil {
					return nil, err
				}
			}
			e.Shares = append(e.Shares, s)
		}
		return s.tell(now, e), nil
	case "withdraw":
		return s.tell(now, Withdraw{GrantID(args.text("grant", ""))}), nil
	case "restrict":
		return s.tell(now, Restrict{GrantID(args.text("grant", "")), int(args.signed("limit", -1))}), nil
	case "limit":
		return s.tell(now, Limit{args.text("user", "ann"), args["slots"] != "", int(args.number("slots"))}), nil
	}
	for _, w := range words {
		if strings.Contains(w, "=") {
			continue
		}
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			return all, err
		}
		e, err := clientEvent(name, ClientID(n), args)
		if err != nil {
			return all, err
		}
		all = append(all, s.tell(now, e)...)
	}
	return all, nil
}

// tell tells the core an event, and writes down if it is refused.
func (s *script) tell(now Time, e Event) []Effect {
	if err := s.core.Refuses(e); err != nil {
		fmt.Fprintln(&s.out, "    refused:", err)
	}
	return s.core.Step(now, e)
}

// deviceEvent makes an event of a device, or nil.
func deviceEvent(name string, args arguments) Event {
	id := DeviceID(args.number("device"))
	switch name {
	case "added":
		return Added{args.device()}
	case "returned":
		return Returned{id, args.device()}
	case "lost":
		return Lost{id}
	case "drain":
		return Drain{id}
	case "resume":
		return Resume{id}
	case "remove":
		return Remove{id}
	case "resize":
		return Resize{id, int(args.signed("slots", 0))}
	}
	return nil
}

// clientEvent makes an event of a client.
func clientEvent(name string, id ClientID, args arguments) (Event, error) {
	switch name {
	case "attach":
		return Attach{Client: id, User: args.text("user", "ann"), Weight: int(args.number("weight")), Grant: GrantID(args.text("grant", "")), Share: int(args.number("share")), Priority: int(args.signed("priority", 0))}, nil
	case "detach":
		return Detach{id}, nil
	case "want":
		pinned := AnyDevice
		if args["pinned"] != "" {
			pinned = DeviceID(args.number("pinned"))
		}
		return Want{id, args.number("need"), args.time("estimate"), pinned}, nil
	case "grow":
		return Grow{id, args.number("need")}, nil
	case "busy":
		return Busy{id}, nil
	case "idle":
		return Idle{id, args.time("for")}, nil
	case "sync":
		return SyncPoint{id}, nil
	case "released":
		return Released{id, args.number("keeps"), args.time("took")}, nil
	case "freed":
		return Freed{id, args.number("left")}, nil
	case "began":
		return Began{id, args.time("took")}, nil
	case "ran":
		return Ran{id, int(args.number("kernels")), args.time("busy")}, nil
	case "failed":
		return Faulted{id}, nil
	case "move":
		return Move{id, DeviceID(args.number("device"))}, nil
	case "adopt":
		e := Adopt{Client: id, User: args.text("user", "ann"), Weight: 1, Device: AnyDevice, Pinned: AnyDevice, Memory: args.number("memory"), Kept: args.number("kept"), Lease: int(args.number("lease")), Grant: GrantID(args.text("grant", "")), Share: int(args.number("share"))}
		if args["device"] != "" {
			e.Device = DeviceID(args.number("device"))
		}
		e.Held = args["memory"] != ""
		return e, nil
	}
	return nil, fmt.Errorf("no such event")
}

// queues writes the queues, and what is free on each device.
func (s *script) queues() {
	view := s.core.View()
	var queue [Failed + 1][]string
	for _, x := range view.Clients {
		name := fmt.Sprint(x.ID)
		if x.Revoking {
			name += "!"
		}
		if x.Parked {
			name += "p"
		}
		if x.Target != AnyDevice {
			name += fmt.Sprint(">", x.Target)
		}
		queue[x.State] = append(queue[x.State], name)
	}
	fmt.Fprint(&s.out, "   ")
	if len(queue[Unqueued]) > 0 && slices.ContainsFunc(view.Clients, func(x ClientView) bool { return x.Target != AnyDevice }) {
		fmt.Fprintf(&s.out, " %v [%s]", Unqueued, strings.Join(queue[Unqueued], " "))
	}
	for st := Ready; st <= Failed; st++ {
		if len(queue[st]) > 0 {
			fmt.Fprintf(&s.out, " %v [%s]", st, strings.Join(queue[st], " "))
		}
	}
	for _, d := range view.Devices {
		if d.State == DeviceLost || d.State == DeviceRemoved {
			continue
		}
		fmt.Fprint(&s.out, " ", d.Name)
		if d.State != DeviceUp {
			fmt.Fprintf(&s.out, "(%v)", d.State)
		}
		fmt.Fprintf(&s.out, " %d/%d %d/%d", d.Used, d.Slots, d.Taken, d.Memory)
	}
	for _, x := range view.Clients {
		if x.Moves != (Moves{}) {
			fmt.Fprintf(&s.out, " moves of %d %+v", x.ID, x.Moves)
		}
	}
	fmt.Fprintln(&s.out)
}

type arguments map[string]string

func (a arguments) text(key, otherwise string) string { return orDefault(a[key], otherwise) }

func (a arguments) number(key string) uint64 {
	if a[key] == "" {
		return 0
	}
	n, err := strconv.ParseUint(a[key], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a arguments) signed(key string, otherwise int64) int64 {
	if a[key] == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(a[key], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a arguments) time(key string) time.Duration {
	if a[key] == "" {
		return 0
	}
	d, err := time.ParseDuration(a[key])
	if err != nil {
		panic(err)
	}
	return d
}

func (a arguments) device() Device {
	speed, err := strconv.ParseFloat(a.text("speed", "1"), 64)
	if err != nil {
		panic(err)
	}
	return Device{Name: a["name"], Slots: int(a.number("slots")), Speed: speed, Memory: a.number("memory"), ContextCost: a.number("context")}
}
