// Package words defines what Muster's parts in Slurm say to each other in the comment of a job: the
// job_submit script writes what the user asked for, the driver answers with what the job got or why
// it waits, and the plug-in on the nodes reads the answer. It is text with exactly one spelling, so
// that a script in Lua and a plug-in in C can write and read it too; testdata/words.txt has
// examples that all three are tested with.
//
// The comment is the administrators' (AdminComment), which users cannot write. Where REST cannot
// write that (Slurm 22.05), the driver uses the user's comment, and the script keeps users from
// changing it.
//
// # Spelling
//
//	[OTHER ]muster:req[ hold=user][ as=N][ rgpu=N][ mem=NM][ mode=excl|shar][ TERMS][ or=OPTIONS]...[ was=NODES|-][ paused=yes]
//	[OTHER ]muster:req... muster:wait why=SENTENCE
//	[OTHER ]muster:req... muster:got START JOB nodes=N1,N2 rgpu=N1:0,N3:1|- grant=PATH|- why=SENTENCE
//
// There is one space between words, and the order is the one shown. OTHER is text that others have
// written there; it is kept. Every job that Muster is to place has muster:req, also one that asks
// for no GPUs. TERMS say how it has its GPUs, [ reach=device|node|cluster][ beyond=NM|all][ map=MAPPER],
// which also hold for an alternative. In OPTIONS, MAPPER and PATH, bytes up to space, bytes from 127 on, and "%" are written as
// %XX. The sentence extends to the end of the comment.
//
// When the driver has chosen one of the alternatives, it writes as=, counted from 1; the rest is
// then what that alternative asks for. When it first places a job, it adds was=: the nodes that the
// user named (sbatch -w), since the placement replaces them in Slurm's record. Before it suspends a
// job it writes paused=yes, and removes that when it resumes the job.
//
// START is how often Slurm has restarted the job, and JOB is its number. Slurm copies a comment
// when a task leaves its array, and keeps it when a job is requeued; an answer for another start or
// another job counts for nothing.
package words

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/model"
)

// Limits of what is read; a longer comment is an error.
const (
	MaxComment = 64 << 10
	maxWords   = 8192
)

// Mode says whether a job shares its GPUs with others.
type Mode string

// The modes of --rcuda-mode.
const (
	Exclusive Mode = "excl"
	Shared    Mode = "shar"
)

// Request is what the user asked for beyond what Slurm's own fields say.
type Request struct {
	// Held says that the user wants the job held (sbatch -H): it must not be placed yet.
	Held bool
	// GPUs is how many GPUs, on any nodes of the cluster, the job asks for.
	GPUs int
	// MemoryMB is the memory that it needs of each GPU; 0 is the whole device.
	MemoryMB int64
	// Mode is empty if the user did not say.
	Mode Mode
	// Terms say how the job has the GPUs. Class and weight are not among them: users of Slurm have those
	// that the nodes' limits give them.
	Terms model.Terms
	// Or are the options of alternative requests, each as sbatch takes them.
	Or []string
	// As is the number of the alternative that was chosen, from 1; 0 is none.
	As int
	// Placed says that the driver has placed the job before. Was is the node list that the user
	// gave then.
	Placed bool
	Was    string
	// Paused says that the driver has suspended the job, and not an administrator.
	Paused bool
}

// Shares says whether the job shares its GPUs with others: a user who gives only the memory accepts
// a share.
func (r *Request) Shares() bool { return r.MemoryMB > 0 && r.Mode != Exclusive }

// Device is one GPU of a node.
type Device struct {
	Node   string
	Device int
}

func (d Device) String() string { return d.Node + ":" + strconv.Itoa(d.Device) }

// Answer is what a job got.
type Answer struct {
	// Start is how often Slurm had restarted the job, Job its number.
	Start int
	Job   uint64
	// Nodes are the nodes of its processes.
	Nodes []string
	// Devices are the GPUs that serve it, in the order in which the job counts them: those of the
	// processes on its first node, then those of its second, and so on (UserOf).
	Devices []Device
	// Grant is the path of its grants; "" if it needs none.
	Grant string
	// Why says why it got these.
	Why string
}

// UserOf returns which of the answer's nodes has the processes that use a device, by its place in
// Devices. A job's GPUs are divided evenly over its nodes; the first ones have one more if a few are
// left over.
func (a *Answer) UserOf(device int) int {
	each, more := len(a.Devices)/len(a.Nodes), len(a.Devices)%len(a.Nodes)
	if of := more * (each + 1); device >= of {
		return more + (device-of)/each
	}
	return device / (each + 1)
}

// For says whether the answer is for a start of a job.
func (a *Answer) For(job uint64, start int) bool {
	return a != nil && a.Job == job && a.Start == start
}

// Same says whether two answers give a job the same.
func (a *Answer) Same(b *Answer) bool {
	return slices.Equal(a.Nodes, b.Nodes) && slices.Equal(a.Devices, b.Devices)
}

// Comment is the content of a comment. Request is nil if the comment is not Muster's.
type Comment struct {
	Other   string
	Request *Request
	Answer  *Answer
	// Why says why a job without an answer waits; "" if no reason was written.
	Why string
}

const (
	reqWord  = "muster:req"
	gotWord  = "muster:got"
	waitWord = "muster:wait"
)

// String formats a comment.
func (c Comment) String() string {
	var b strings.Builder
	b.WriteString(c.Other)
	if c.Request == nil {
		return b.String()
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	c.Request.write(&b)
	switch {
	case c.Answer != nil:
		b.WriteByte(' ')
		c.Answer.write(&b)
	case c.Why != "":
		b.WriteString(" " + waitWord + " why=" + sentence(c.Why))
	}
	return b.String()
}

func (r *Request) write(b *strings.Builder) {
	b.WriteString(reqWord)
	if r.Held {
		b.WriteString(" hold=user")
	}
	if r.As > 0 {
		fmt.Fprintf(b, " as=%d", r.As)
	}
	if r.GPUs > 0 {
		fmt.Fprintf(b, " rgpu=%d", r.GPUs)
	}
	if r.MemoryMB > 0 {
		fmt.Fprintf(b, " mem=%dM", r.MemoryMB)
	}
	if r.Mode != "" {
		b.WriteString(" mode=" + string(r.Mode))
	}
	writeTerms(b, &r.Terms)
	for _, o := range r.Or {
		b.WriteString(" or=" + escape(o))
	}
	switch {
	case r.Was != "":
		b.WriteString(" was=" + escape(r.Was))
	case r.Placed:
		b.WriteString(" was=-")
	}
	if r.Paused {
		b.WriteString(" paused=yes")
	}
}

func writeTerms(b *strings.Builder, t *model.Terms) {
	if t.Reach != nil {
		b.WriteString(" reach=" + t.Reach.String())
	}
	switch {
	case t.Beyond == nil:
	case *t.Beyond == model.AllBeyond:
		b.WriteString(" beyond=all")
	default:
		fmt.Fprintf(b, " beyond=%dM", *t.Beyond>>20)
	}
	if t.Mapping != "" {
		b.WriteString(" map=" + escape(t.Mapping))
	}
}

func (a *Answer) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s %d %d nodes=%s rgpu=", gotWord, a.Start, a.Job, strings.Join(a.Nodes, ","))
	for i, d := range a.Devices {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(d.String())
	}
	if len(a.Devices) == 0 {
		b.WriteByte('-')
	}
	grant := "-"
	if a.Grant != "" {
		grant = escape(a.Grant)
	}
	b.WriteString(" grant=" + grant + " why=" + sentence(a.Why))
}

// sentence puts a text on one line, since Slurm's commands print a job's comment as it is.
func sentence(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 127 {
			return ' '
		}
		return r
	}, s))
}

// Parse parses a comment. One without Muster's words is all Other.
func Parse(text string) (Comment, error) {
	if len(text) > MaxComment {
		return Comment{}, fmt.Errorf("the comment has %d bytes, at most %d are read: shorten it with scontrol update", len(text), MaxComment)
	}
	at := find(text)
	if at < 0 {
		return Comment{Other: text}, nil
	}
	c := Comment{Other: strings.TrimSuffix(text[:at], " ")}
	p := parser{rest: text[at:]}
	if err := p.comment(&c); err != nil {
		return Comment{}, fmt.Errorf("the comment %s: %w", quoted(text[at:]), err)
	}
	return c, nil
}

// find is where Muster's words begin, or -1.
func find(text string) int {
	for from := 0; ; {
		i := strings.Index(text[from:], reqWord)
		if i < 0 {
			return -1
		}
		i += from
		end := i + len(reqWord)
		if (i == 0 || text[i-1] == ' ') && (end == len(text) || text[end] == ' ') {
			return i
		}
		from = end
	}
}

func quoted(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return strconv.Quote(s)
}

type parser struct {
	rest string
	read int
}

// word takes the next word; "" at the end.
func (p *parser) word() string {
	w, rest, _ := strings.Cut(p.rest, " ")
	p.rest = rest
	p.read++
	return w
}

func (p *parser) comment(c *Comment) error {
	p.word() // muster:req
	c.Request = &Request{}
	for p.rest != "" {
		if p.read > maxWords {
			return fmt.Errorf("it has more than %d words", maxWords)
		}
		switch w := p.word(); w {
		case gotWord:
			return p.answer(c)
		case waitWord:
			why, ok := strings.CutPrefix(p.rest, "why=")
			if !ok {
				return errors.New("muster:wait needs why= behind it")
			}
			c.Why = sentence(why)
			return nil
		default:
			if err := c.Request.set(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// set parses one KEY=VALUE of a request.
func (r *Request) set(w string) error {
	key, value, ok := strings.Cut(w, "=")
	if !ok {
		return fmt.Errorf("%s is no KEY=VALUE", quoted(w))
	}
	var err error
	switch key {
	case "hold":
		r.Held = value == "user"
		if !r.Held {
			err = errors.New("only hold=user is known")
		}
	case "as":
		var n uint64
		n, err = number(value, 1<<20)
		r.As = int(n)
	case "rgpu":
		var n uint64
		n, err = number(value, 1<<20)
		r.GPUs = int(n)
	case "mem":
		var n uint64
		n, err = megabytes(key, value)
		r.MemoryMB = int64(n)
	case "reach", "beyond", "map":
		err = setTerm(&r.Terms, key, value)
	case "mode":
		if r.Mode = Mode(value); r.Mode != Exclusive && r.Mode != Shared {
			err = fmt.Errorf("the mode must be %s or %s, not %s", Exclusive, Shared, quoted(value))
		}
	case "or":
		var text string
		text, err = unescape(value)
		if err == nil && text == "" {
			err = errors.New("an alternative is empty")
		}
		r.Or = append(r.Or, text)
	case "was":
		r.Placed = true
		if value != "-" {
			if r.Was, err = unescape(value); err == nil && r.Was == "" {
				err = errors.New("was= needs nodes, or -")
			}
		}
	case "paused":
		if r.Paused = value == "yes"; !r.Paused {
			err = errors.New("only paused=yes is known")
		}
	default:
		return fmt.Errorf("%s is not known: the words are hold, as, rgpu, mem, mode, reach, beyond, map, or, was and paused", quoted(key))
	}
	return err
}

func setTerm(t *model.Terms, key, value string) error {
	switch {
	case key == "reach":
		r, err := model.ParseReach(value)
		t.Reach = &r
		return err
	case key == "map":
		text, err := unescape(value)
		if err == nil && text == "" {
			err = errors.New("map= needs a mapper")
		}
		t.Mapping = text
		return err
	}
	n := uint64(model.AllBeyond)
	if value != "all" {
		mb, err := megabytes(key, value)
		if err != nil || mb<<20 >= n {
			return errors.Join(err, fmt.Errorf("beyond=%s: more than any GPU has is written as beyond=all", quoted(value)))
		}
		n = mb << 20
	}
	t.Beyond = &n
	return nil
}

// megabytes parses the value of a key as 4096M.
func megabytes(key, value string) (uint64, error) {
	digits, ok := strings.CutSuffix(value, "M")
	if !ok {
		return 0, fmt.Errorf("%s=%s must be written as %s=4096M", key, quoted(value), key)
	}
	return number(digits, 1<<40)
}

// answer parses what follows muster:got.
func (p *parser) answer(c *Comment) error {
	a := &Answer{}
	start, err := number(p.word(), 1<<30)
	if err != nil {
		return fmt.Errorf("the start of muster:got: %w", err)
	}
	a.Start = int(start)
	if a.Job, err = number(p.word(), 1<<62); err != nil {
		return fmt.Errorf("the job of muster:got: %w", err)
	}
	nodes, err := p.value("nodes")
	if err != nil {
		return err
	}
	for _, n := range strings.Split(nodes, ",") {
		if n == "" {
			return errors.New("nodes= has an empty name")
		}
		a.Nodes = append(a.Nodes, n)
	}
	devices, err := p.value("rgpu")
	if err != nil {
		return err
	}
	if a.Devices, err = parseDevices(devices); err != nil {
		return err
	}
	grant, err := p.value("grant")
	if err != nil {
		return err
	}
	if grant != "-" {
		if a.Grant, err = unescape(grant); err != nil {
			return err
		}
	}
	why, ok := strings.CutPrefix(p.rest, "why=")
	if !ok {
		return errors.New("muster:got needs why= at its end")
	}
	a.Why = sentence(why)
	c.Answer = a
	return nil
}

// value takes the next word, which must be KEY=VALUE with this key.
func (p *parser) value(key string) (string, error) {
	v, ok := strings.CutPrefix(p.word(), key+"=")
	if !ok || v == "" {
		return "", fmt.Errorf("muster:got lacks %s= in its place", key)
	}
	return v, nil
}

func parseDevices(s string) ([]Device, error) {
	if s == "-" {
		return nil, nil
	}
	var list []Device
	for _, item := range strings.Split(s, ",") {
		i := strings.LastIndexByte(item, ':')
		if i <= 0 {
			return nil, fmt.Errorf("rgpu=%s: a GPU is written as NODE:NUMBER", quoted(item))
		}
		n, err := number(item[i+1:], 1<<16)
		if err != nil {
			return nil, fmt.Errorf("rgpu=%s: %w", quoted(item), err)
		}
		list = append(list, Device{item[:i], int(n)})
	}
	return list, nil
}

// number parses a whole number in its one spelling: no sign, no leading zeros.
func number(s string, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > most || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("%s is no number from 0 to %d", quoted(s), most)
	}
	return n, nil
}

const hexDigits = "0123456789ABCDEF"

func plain(b byte) bool { return b > ' ' && b < 127 && b != '%' }

func escape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("%s ends within %%XX", quoted(s))
		}
		high, low := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if high < 0 || low < 0 {
			return "", fmt.Errorf("%s has %% without two digits of 0-9A-F behind it", quoted(s))
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return b.String(), nil
}
