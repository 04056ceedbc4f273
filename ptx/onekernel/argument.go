package onekernel

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"muster/internal/misuse"
	"muster/ptx"
	"muster/ptx/codefile"
	"muster/ptx/number"
	"muster/report"
)

// ArgumentHelp says how arguments are written.
const ArgumentHelp = `Arguments are given with --arg, one for each parameter of the kernel, in order:

  u32:7   f32:1.5   s64:-3    a number
  f32:1,2,3,4                 a structure passed by value, of numbers of one type
  bytes:0100000000000040      the same, byte by byte in hexadecimal
  TYPE[COUNT]=CONTENT         a buffer in GPU memory; the kernel gets its address
  out:TYPE[COUNT]             a buffer of zeros, printed when the kernel has ended
  inout:TYPE[COUNT]=CONTENT   a buffer with a content, printed when it has ended
  out=@FILE:...               the same, written to FILE instead, also inout=@FILE:

TYPE is u, s or b (bits, shown in hexadecimal) with 8, 16, 32 or 64, or f16, bf16,
f32 or f64. CONTENT is one of:

  0                           every element the same number
  1,2,3,4                     these numbers; COUNT may be left out: f32[]=1,2,3,4
  iota                        0, 1, 2, 3 and so on
  random                      integers of all values, floats from 0 up to 1
  random:seed=7:below=100     another draw; from 0 up to a bound
  @FILE                       the bytes of a file, little-endian; COUNT may be left out

Brackets mean something to the shell: put such arguments in quotes.`

// Argument is one --arg, parsed but not yet checked against the kernel.
type Argument struct {
	number int    // from 1
	text   string // as given
	mode   string // "value", "in", "out" or "inout"
	typ    ptx.Type
	count  int // number of elements
	value  []byte
	fill   func(b []byte) // writes the initial contents of a buffer; nil for zeros
	file   string         // file to which the buffer is written after the run; "" to print it
}

// File returns the file to which the buffer is written after the run; "" to print it.
func (a *Argument) File() string { return a.file }

func (a *Argument) isBuffer() bool { return a.mode != "value" }

// wanted says whether the user wants to see the buffer after the run.
func (a *Argument) wanted() bool { return a.mode == "out" || a.mode == "inout" }

// size returns the bytes of a value or of a buffer.
func (a *Argument) size() int {
	if a.isBuffer() {
		return a.count * a.typ.Size()
	}
	return len(a.value)
}

// shape returns type and count: "f32[16]".
func (a *Argument) shape() string { return fmt.Sprintf("%v[%d]", a.typ, a.count) }

var (
	bufferPattern = regexp.MustCompile(`^(?:([a-z]+)(?:=@(.+?))?:)?([a-z]+[0-9]*)\[([^\]]*)\](?:=(.*))?$`)
	valuePattern  = regexp.MustCompile(`^([a-z]+[0-9]*):(.*)$`)
)

// ParseArguments parses all --arg, and reads the files that they name as contents.
func ParseArguments(texts []string) ([]*Argument, error) {
	var args []*Argument
	for i, text := range texts {
		a := &Argument{number: i + 1, text: text}
		if err := a.parse(); err != nil {
			var missing syscall.Errno // the system's reason for not reading the file
			if errors.As(err, &missing) {
				return nil, fmt.Errorf("argument %d: %w", a.number, err)
			}
			return nil, misuse.Errorf("argument %d, %q: %v", a.number, text, err)
		}
		args = append(args, a)
	}
	return args, nil
}

func (a *Argument) parse() error {
	if m := bufferPattern.FindStringSubmatch(a.text); m != nil {
		return a.parseBuffer(m[1], m[2], m[3], m[4], m[5], strings.Contains(a.text, "]="))
	}
	if m := valuePattern.FindStringSubmatch(a.text); m != nil {
		return a.parseValue(m[1], m[2])
	}
	if _, err := strconv.ParseFloat(a.text, 64); err == nil {
		return fmt.Errorf("say of which type the number is, as in s32:%s or f32:%s", a.text, a.text)
	}
	return errors.New("it is neither a number such as u32:7 nor a buffer such as f32[16]=0 or out:f32[16]")
}

func (a *Argument) parseValue(name, text string) error {
	a.mode = "value"
	if name == "bytes" {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) == 0 {
			return errors.New("bytes are pairs of hexadecimal digits, as in bytes:0a0b0c0d")
		}
		a.typ, a.count, a.value = ptx.B8, len(b), b
		return nil
	}
	if name == "in" || name == "out" || name == "inout" {
		return fmt.Errorf("a buffer needs a type and a count, as in %s:f32[16]", name)
	}
	var err error
	if a.typ, err = number.ParseType(name); err != nil {
		return err
	}
	a.value, err = parseList(a.typ, text)
	a.count = len(a.value) / a.typ.Size()
	return err
}

// parseList reads numbers separated by commas.
func parseList(t ptx.Type, text string) ([]byte, error) {
	numbers := strings.Split(text, ",")
	b := make([]byte, len(numbers)*t.Size())
	for i, n := range numbers {
		bits, err := number.Parse(t, n)
		if err != nil {
			return nil, err
		}
		number.Put(t, b, i, bits)
	}
	return b, nil
}

func (a *Argument) parseBuffer(mode, file, typ, count, content string, hasContent bool) error {
	switch mode {
	case "", "in":
		a.mode = "in"
	case "out", "inout":
		a.mode = mode
	default:
		return fmt.Errorf("a buffer is in, out or inout, not %q", mode)
	}
	if file != "" && !a.wanted() {
		return errors.New("a buffer that the kernel only reads is not written to a file: make it out or inout")
	}
	a.file = file
	var err error
	if a.typ, err = number.ParseType(typ); err != nil {
		return err
	}
	if count != "" {
		a.count, err = strconv.Atoi(count)
		if err != nil || a.count < 1 || a.count > math.MaxInt/16 {
			return fmt.Errorf("%q is no number of elements", count)
		}
	}
	switch {
	case a.mode == "out" && hasContent:
		return errors.New("an out buffer begins as zeros: make it inout to give it a content")
	case a.mode == "out" && count == "":
		return fmt.Errorf("say how many elements: out:%s[16]", typ)
	case a.mode == "out":
		return nil
	case !hasContent && a.mode == "in":
		return fmt.Errorf("it has no content: write %s[%s]=0, or out:%s[%s] if the kernel fills it", typ, count, typ, count)
	case !hasContent:
		return fmt.Errorf("it has no content: write inout:%s[%s]=0", typ, count)
	}
	return a.parseContent(content)
}

func (a *Argument) parseContent(content string) error {
	word, rest, _ := strings.Cut(content, ":")
	switch {
	case strings.HasPrefix(content, "@"):
		return a.contentOfFile(content[1:])
	case content == "iota" || word == "random":
		if a.count == 0 {
			return fmt.Errorf("say how many elements: %v[16]=%s", a.typ, content)
		}
		if content == "iota" {
			a.fill = func(b []byte) { a.each(b, func(i int) uint64 { return number.Counting(a.typ, i) }) }
			return nil
		}
		return a.contentAtRandom(rest)
	}
	list, err := parseList(a.typ, content)
	if err != nil {
		return fmt.Errorf("%w; or iota, random, or @FILE", err)
	}
	given := len(list) / a.typ.Size()
	switch {
	case a.count == 0:
		a.count = given
	case given == 1:
		a.fill = func(b []byte) { a.each(b, func(int) uint64 { return number.Get(a.typ, list, 0) }) }
		return nil
	case given != a.count:
		return fmt.Errorf("%d numbers are given for %d elements: give as many, or one for all", given, a.count)
	}
	a.fill = func(b []byte) { copy(b, list) }
	return nil
}

func (a *Argument) each(b []byte, value func(i int) uint64) {
	for i := range a.count {
		number.Put(a.typ, b, i, value(i))
	}
}

// contentAtRandom reads "seed=S:below=N". The argument's number is part of the
// seed, so that two buffers with the same S differ.
func (a *Argument) contentAtRandom(text string) error {
	seed, below := uint64(1), uint64(0)
	for setting := range strings.SplitSeq(text, ":") {
		if text == "" {
			break
		}
		key, value, _ := strings.Cut(setting, "=")
		n, err := strconv.ParseUint(value, 0, 64)
		switch {
		case key != "seed" && key != "below":
			return fmt.Errorf("random has no setting %q: it takes seed=S and below=N", key)
		case err != nil:
			return fmt.Errorf("%q is no whole number", value)
		case key == "seed":
			seed = n
		case n == 0:
			return errors.New("nothing is below 0")
		default:
			below = n
		}
	}
	highest := number.Mask(a.typ)
	if a.typ.Signed() {
		highest >>= 1
	}
	if !a.typ.Float() && below > 0 && below-1 > highest {
		return fmt.Errorf("below=%d is more than %v holds", below, a.typ)
	}
	a.fill = func(b []byte) {
		r := rand.New(rand.NewPCG(seed, uint64(a.number)))
		a.each(b, func(int) uint64 { return number.Random(a.typ, r, below) })
	}
	return nil
}

func (a *Argument) contentOfFile(path string) error {
	f, file, err := codefile.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // it was only read
	size := a.typ.Size()
	if a.count > 0 && f.Size >= 0 && f.Size != int64(a.count*size) {
		return fmt.Errorf("%s has %d bytes, %s takes %d: leave the count out to take the whole file", path, f.Size, a.shape(), a.count*size)
	}
	limit := f.Bound(codefile.MaxData)
	if a.count > 0 {
		limit = min(int64(a.count*size), codefile.MaxData)
	}
	data, err := f.All(limit)
	switch {
	case err != nil:
		return err
	case len(data) == 0:
		return fmt.Errorf("%s is empty", path)
	case len(data)%size != 0:
		return fmt.Errorf("%s has %d bytes, which are no whole number of %v", path, len(data), a.typ)
	case a.count == 0:
		a.count = len(data) / size
	case len(data) != a.count*size:
		return fmt.Errorf("%s has %d bytes, %s takes %d", path, len(data), a.shape(), a.count*size)
	}
	a.fill = func(b []byte) { copy(b, data) }
	return nil
}

// checkArguments compares the arguments with a kernel's parameters.
func checkArguments(kernel *ptx.Function, args []*Argument) error {
	params := argumentsOf(kernel)
	if len(args) != len(params) {
		return misuse.Errorf("kernel %s takes %s%s: %d given with --arg", kernel.Name, report.Plural(len(params), "argument"), parameterList(params), len(args))
	}
	for i, a := range args {
		if err := a.fits(params[i]); err != nil {
			return misuse.Errorf("argument %d, %q: %v", a.number, a.text, err)
		}
	}
	return nil
}

// argumentsOf returns the parameters that the user must give: all but hidden ones,
// which are zero.
func argumentsOf(kernel *ptx.Function) []*ptx.Variable {
	return slices.DeleteFunc(slices.Clone(kernel.Params), func(p *ptx.Variable) bool { return p.Hidden })
}

// parameterList lists the parameters' types: " (u64, u64, u32)".
func parameterList(params []*ptx.Variable) string {
	if len(params) == 0 {
		return ""
	}
	var names []string
	for _, p := range params {
		names = append(names, p.TypeName())
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// fits returns why an argument cannot be passed as a parameter, or nil.
func (a *Argument) fits(p *ptx.Variable) error {
	scalar := len(p.Dims) == 0 && p.Vector <= 1
	switch {
	case a.isBuffer() && (p.Size() != 8 || p.Type.Float()):
		return fmt.Errorf("the kernel takes %s here, no address: give a value such as %s", p.TypeName(), exampleOf(p))
	case a.isBuffer():
		return nil
	case len(a.value) != p.Size():
		return fmt.Errorf("the kernel takes %s here, %s, and this has %d: give a value such as %s", p.TypeName(), report.Plural(p.Size(), "byte"), len(a.value), exampleOf(p))
	case scalar && a.count == 1 && a.typ.Float() != p.Type.Float() && !isBits(a.typ) && !isBits(p.Type):
		return fmt.Errorf("the kernel takes %v here: give a value such as %s, or its bits as b%d:0x0", p.Type, exampleOf(p), p.Type.Bits())
	}
	return nil
}

func isBits(t ptx.Type) bool { return !t.Float() && !t.Signed() && !t.Unsigned() }

// exampleOf returns an example of a value for a parameter.
func exampleOf(p *ptx.Variable) string {
	switch {
	case len(p.Dims) > 0 || p.Vector > 1:
		return fmt.Sprintf("bytes:... of %d bytes, or numbers with commas between", p.Size())
	case p.Type.Float():
		return p.Type.String() + ":1.5"
	case p.Size() == 8:
		return p.Type.String() + ":7, or a buffer such as f32[16]=0"
	}
	return p.Type.String() + ":7"
}
