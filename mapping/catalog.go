package mapping

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"muster/model"
)

// Entry makes a mapper known by name.
type Entry struct {
	Name    string
	Summary string // one line
	Options []model.Option

	// read makes sense of the settings; what it returns makes the mapper of a layout.
	read func(model.Settings) (maker, error)
}

type maker func(*Layout) (Mapper, error)

// reachOptions are the settings of mappers that look at some devices only.
func reachOptions(choices, idle, locality string) []model.Option {
	return []model.Option{
		{Name: "group", Default: "0", Summary: "how many nodes share their devices with each other; 0 for all"},
		{Name: "groups", Default: "stride", Summary: "stride: nodes of a group lie far apart; block: they are neighbours"},
		{Name: "choices", Default: choices, Summary: "how many devices of other nodes are looked at, drawn at random; 0 for all"},
		{Name: "idle", Default: idle, Summary: "first: of other nodes idle devices, others only for want of them; any: no matter"},
		{Name: "locality", Default: locality, Summary: "yes: data that a device holds need not travel there; no: all do"},
		{Name: "protect", Default: "no", Summary: "yes: GPUs of a critical application's nodes are for itself alone"},
	}
}

var estimateSummary = "window: calls take as long as the last ones of the device; " +
	"kernel: as the kernel's own before; bytes: so, in line with their data"

// Entries are all mappers, in the order in which they are shown.
var Entries = []Entry{
	{
		Name: "st", Summary: "static: each process has one GPU of its own node",
		read: func(model.Settings) (maker, error) {
			return func(l *Layout) (Mapper, error) { return &static{l}, nil }, nil
		},
	},
	{
		Name: "gr", Summary: "global reservation: one queue for all GPUs",
		Options: []model.Option{
			{Name: "local", Default: "any", Summary: "first: an idle GPU of the own node before all others; any: no matter"},
		},
		read: func(s model.Settings) (maker, error) {
			first, err := either(s, "local", "any", "first")
			return func(l *Layout) (Mapper, error) { return &reservation{l, first}, nil }, err
		},
	},
	{
		Name: "split", Summary: "static, but a share of one application's processes have GPUs of another's nodes (rCUDA)",
		Options: []model.Option{
			{Name: "share", Default: "1/2", Summary: "the share, as a fraction"},
			{Name: "from", Default: "0", Summary: "number of the application that gives processes away"},
			{Name: "to", Default: "1", Summary: "number of the application whose nodes take them"},
		},
		read: readSplit,
	},
	{
		Name: "ag", Summary: "adaptive greedy: the GPU with the least waiting, data included",
		Options: append([]model.Option{
			{Name: "reading", Default: "literal", Summary: "of equation 6; literal: a link is shared by what is under way; plus: and by this call"},
			{Name: "estimate", Default: "window", Summary: estimateSummary},
		}, reachOptions("0", "any", "no")...),
		read: readGreedy,
	},
	{
		Name: "ar", Summary: "adaptive random: any GPU, by weights that favour idle and local ones",
		Options: append([]model.Option{
			{Name: "alpha", Default: "adaptive", Summary: "weight of a busy GPU, of an idle one's; a number fixes it"},
			{Name: "beta", Default: "adaptive", Summary: "weight of a local GPU, of a remote one's; a number fixes it"},
			{Name: "bounds", Default: "paper", Summary: "of adaptive weights; paper: alpha at most 1, beta at least 1; none: as the equations say"},
		}, reachOptions("0", "any", "no")...),
		read: readRandom,
	},
	{
		Name: "probe", Summary: "the best of the own GPUs and a few others, idle ones first: the same cost on any number",
		Options: append([]model.Option{
			{Name: "care", Default: "4", Summary: "how much a device that is held for data counts for those who wait; 0 for not at all"},
			{Name: "estimate", Default: "kernel", Summary: estimateSummary},
		}, reachOptions("2", "first", "yes")...),
		read: readProbe,
	},
}

// New makes the mapper of a layout from "NAME" or "NAME:key=value:key=value".
func New(spec string, l *Layout) (Mapper, error) {
	name, build, err := parse(spec)
	if err != nil {
		return nil, err
	}
	if l.Devices() == 0 {
		return nil, fmt.Errorf("mapper %s: the cluster has no GPU: give it a node with some", name)
	}
	m, err := build(l)
	if err != nil {
		return nil, fmt.Errorf("mapper %s: %w", name, err)
	}
	return m, nil
}

// Check says what is wrong with the text that names a mapper, as far as that
// can be known without a layout.
func Check(spec string) error {
	_, _, err := parse(spec)
	return err
}

// Off is the setting of those who want no launch mapped.
const Off = "off"

// CheckSetting is Check for a setting that may also be Off.
func CheckSetting(spec string) error {
	if spec == Off {
		return nil
	}
	return Check(spec)
}

func parse(spec string) (name string, _ maker, _ error) {
	name, rest, _ := strings.Cut(spec, ":")
	names := make([]string, len(Entries))
	for i := range Entries {
		e := &Entries[i]
		names[i] = e.Name
		if e.Name != name {
			continue
		}
		s, err := model.ReadSettings(e.Options, rest)
		if err != nil {
			return "", nil, fmt.Errorf("mapper %s: %w", name, err)
		}
		build, err := e.read(s)
		if err != nil {
			return "", nil, fmt.Errorf("mapper %s: %w", name, err)
		}
		return name, build, nil
	}
	if near := model.Nearest(name, names); near != "" {
		return "", nil, fmt.Errorf("there is no mapper %q: did you mean %q?", name, near)
	}
	return "", nil, fmt.Errorf("there is no mapper %q: there are %s", name, strings.Join(names, ", "))
}

func readSplit(s model.Settings) (maker, error) {
	some, of, err := fraction(s["share"])
	if err != nil {
		return nil, err
	}
	from, err := number(s, "from", 0, 1<<30)
	if err != nil {
		return nil, err
	}
	to, err := number(s, "to", 0, 1<<30)
	if err != nil {
		return nil, err
	}
	if from == to {
		return nil, fmt.Errorf("\"from\" and \"to\" are both %d: name two applications", to)
	}
	return func(l *Layout) (Mapper, error) {
		if apps := int32(len(l.Critical)); max(from, to) >= apps {
			return nil, fmt.Errorf("there is no application %d: there are %d, numbered from 0; set \"from\" and \"to\" to two of them", max(from, to), apps)
		}
		m := newSplit(l, some, of, from, to)
		if len(m.devices) == 0 {
			return nil, fmt.Errorf("no node of application %d has a GPU: set \"to\" to another application", to)
		}
		return m, nil
	}, nil
}

func readGreedy(s model.Settings) (maker, error) {
	plus, err := either(s, "reading", "literal", "plus")
	if err != nil {
		return nil, err
	}
	return greedyWith(s, network{plus: plus})
}

func readProbe(s model.Settings) (maker, error) {
	care, err := number(s, "care", 0, 1000)
	if err != nil {
		return nil, err
	}
	return greedyWith(s, network{probe: true, care: int64(care)})
}

func greedyWith(s model.Settings, n network) (maker, error) {
	estimate, err1 := oneOf(s, "estimate", "window", "kernel", "bytes")
	r, err2 := readReach(s)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	return func(l *Layout) (Mapper, error) {
		m := newGreedy(l, r, Estimate(estimate), n)
		return m, m.candidates.check()
	}, nil
}

func readRandom(s model.Settings) (maker, error) {
	alpha, err1 := weight(s, "alpha")
	beta, err2 := weight(s, "beta")
	unbounded, err3 := either(s, "bounds", "paper", "none")
	r, err4 := readReach(s)
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	return func(l *Layout) (Mapper, error) {
		m := newRandom(l, r, alpha, beta, unbounded)
		return m, m.candidates.check()
	}, nil
}

// mostChoices keeps few devices few: each is compared with those drawn before.
const mostChoices = 64

func readReach(s model.Settings) (r reach, err error) {
	var errs [6]error
	r.group, errs[0] = number(s, "group", 0, 1<<30)
	r.block, errs[1] = either(s, "groups", "stride", "block")
	r.choices, errs[2] = number(s, "choices", 0, mostChoices)
	r.idle, errs[3] = either(s, "idle", "any", "first")
	r.locality, errs[4] = either(s, "locality", "no", "yes")
	r.protect, errs[5] = either(s, "protect", "no", "yes")
	if r.group == 0 {
		r.block = false
	}
	return r, cmp.Or(errs[:]...)
}

// oneOf is the place of a setting among the values that it may have.
func oneOf(s model.Settings, name string, values ...string) (int, error) {
	for i, v := range values {
		if s[name] == v {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s must be %s, not %q", name, strings.Join(values, " or "), s[name])
}

// either says whether a setting has the second of its two values.
func either(s model.Settings, name, no, yes string) (bool, error) {
	i, err := oneOf(s, name, no, yes)
	return i == 1, err
}

func number(s model.Settings, name string, least, most int) (int32, error) {
	n, err := strconv.Atoi(s[name])
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s must be a whole number from %d to %d, not %q", name, least, most, s[name])
	}
	return int32(n), nil
}

// weight reads a factor; 0 stands for an adaptive one.
func weight(s model.Settings, name string) (float64, error) {
	if s[name] == "adaptive" {
		return 0, nil
	}
	w, err := strconv.ParseFloat(s[name], 64)
	if err != nil || !(w >= 1e-9 && w <= 1e9) {
		return 0, fmt.Errorf("%s must be adaptive or a number from 1e-9 to 1e9, not %q", name, s[name])
	}
	return w, nil
}

// fraction reads a share such as 1/2; 0 and 1 are none and all.
func fraction(text string) (some, of int64, err error) {
	a, b, ok := strings.Cut(text, "/")
	if !ok {
		b = "1"
	}
	some, err1 := strconv.ParseInt(a, 10, 32)
	of, err2 := strconv.ParseInt(b, 10, 32)
	if err1 != nil || err2 != nil || some < 0 || of < 1 || some > of {
		return 0, 0, fmt.Errorf("share must be a fraction from 0 to 1 such as 1/4, not %q", text)
	}
	return some, of, nil
}
