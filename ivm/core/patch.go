package core

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Patch holds the bytes of one page that a put changes.
type Patch struct {
	Page  int
	Had   uint32 // the version that the mirror had
	data  [Page]byte
	mask  [Page / 64]uint64 // one bit for each byte that has changed
	whole []byte            // the page, if every byte has changed: then data and mask are not used
}

// begin makes p an empty patch of a page.
func (p *Patch) begin(page int, had uint32) {
	p.Page, p.Had, p.whole = page, had, nil
	clear(p.mask[:])
}

// compare marks the bytes between from and to that differ from a twin.
func (p *Patch) compare(twin []byte, from, to int) {
	for ; from < to && from%64 != 0; from++ {
		p.compareByte(twin, from)
	}
	for ; from+64 <= to; from += 64 {
		p.mask[from/64] = differing((*[64]byte)(p.data[from:]), (*[64]byte)(twin[from:]))
	}
	for ; from < to; from++ {
		p.compareByte(twin, from)
	}
}

func (p *Patch) compareByte(twin []byte, i int) {
	if p.data[i] != twin[i] {
		p.mask[i/64] |= 1 << (i % 64)
	}
}

// differing has a bit for each byte in which a and b differ. The first loop handles the usual
// cases, that none or all bytes differ: (x - 0x01..) &^ x & 0x80.. is not 0 exactly if some byte of
// x is 0, that is, if a and b agree somewhere.
func differing(a, b *[64]byte) (mask uint64) {
	var alike, some uint64
	for i := 0; i < 64; i += 8 {
		x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:])
		some |= x
		alike |= (x - lowBits) &^ x & highBits
	}
	if some == 0 {
		return 0
	}
	if alike == 0 {
		return ^uint64(0)
	}
	for i := 0; i < 64; i += 8 {
		x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:])
		mask |= uint64(nonzeroBytes(x)) << i
	}
	return mask
}

const lowBits, highBits = 0x0101010101010101, 0x8080808080808080

// isWhole says whether every byte has changed.
func (p *Patch) isWhole() bool {
	for _, w := range p.mask {
		if w != ^uint64(0) {
			return false
		}
	}
	return true
}

// nonzeroBytes has a bit for each byte of x that is not 0. The shifts fold each byte into its
// lowest bit (bits of the next higher byte only get into the upper bits, which the mask drops); the
// multiplication gathers the eight lowest bits in the top byte.
func nonzeroBytes(x uint64) uint8 {
	x |= x >> 4
	x |= x >> 2
	x |= x >> 1
	x &= 0x0101010101010101
	return uint8(x * 0x0102040810204080 >> 56)
}

// runs calls f for each stretch of changed bytes.
func (p *Patch) runs(f func(from, to int)) {
	for at := 0; ; {
		from := p.nextBit(at, false)
		if from == Page {
			return
		}
		at = p.nextBit(from, true)
		f(from, at)
	}
}

// nextBit is the first byte from at on that has changed, or, inverted, that has not.
func (p *Patch) nextBit(at int, inverted bool) int {
	for at < Page {
		w := p.mask[at/64]
		if inverted {
			w = ^w
		}
		if w >>= at % 64; w != 0 {
			return at + bits.TrailingZeros64(w)
		}
		at = (at/64 + 1) * 64
	}
	return Page
}

// write puts the changed bytes into a page.
func (p *Patch) write(page []byte) {
	if p.whole != nil {
		copy(page, p.whole)
		return
	}
	for i, w := range p.mask {
		to, from := (*[64]byte)(page[64*i:]), (*[64]byte)(p.data[64*i:])
		if w == ^uint64(0) {
			*to = *from
			continue
		}
		for ; w != 0; w &= w - 1 {
			at := bits.TrailingZeros64(w) & 63
			to[at] = from[at]
		}
	}
}

// stretches counts the runs of changed bytes: the bits that are set while the bit before is not.
func (p *Patch) stretches() (n int) {
	before := uint64(0) // the highest bit of the previous word
	for _, w := range p.mask {
		n += bits.OnesCount64(w &^ (w<<1 | before))
		before = w >> 63
	}
	return n
}

// gather appends the changed bytes to to; scatter reads them from there.
func (p *Patch) gather(to []byte) []byte {
	for i, w := range p.mask {
		from := (*[64]byte)(p.data[64*i:])
		if w == ^uint64(0) {
			to = append(to, from[:]...)
			continue
		}
		for ; w != 0; w &= w - 1 {
			to = append(to, from[bits.TrailingZeros64(w)&63])
		}
	}
	return to
}

func (p *Patch) scatter(from []byte) {
	for i, w := range p.mask {
		to := (*[64]byte)(p.data[64*i:])
		if w == ^uint64(0) {
			from = from[copy(to[:], from):]
			continue
		}
		for ; w != 0; w &= w - 1 {
			to[bits.TrailingZeros64(w)&63] = from[0]
			from = from[1:]
		}
	}
}

// Bytes is how many bytes the patch changes.
func (p *Patch) Bytes() int {
	if p.whole != nil {
		return Page
	}
	n := 0
	for _, w := range p.mask {
		n += bits.OnesCount64(w)
	}
	return n
}

// A patch is sent as u32 page, u32 version, u32 form, u32 length, and a body of that length: all of
// the page, or a list of stretches (u16 offset, u16 length), or a bit a byte; then the changed
// bytes. The shortest form is chosen.
const (
	formPage = iota
	formRuns
	formMask

	patchHead = 16
	maskBytes = Page / 8
	// MaxPatch is the longest that a patch can be.
	MaxPatch = patchHead + maskBytes + Page
)

// Append writes the patch behind to.
func (p *Patch) Append(to []byte) []byte {
	if p.whole != nil {
		return append(p.appendHead(to, formPage, Page), p.whole...)
	}
	changed, stretches := p.Bytes(), p.stretches()
	form, length := uint32(formMask), maskBytes+changed
	if 4+4*stretches <= maskBytes {
		form, length = formRuns, 4+4*stretches+changed
	}
	to = p.appendHead(to, form, length)
	le := binary.LittleEndian
	switch form {
	case formRuns:
		to = le.AppendUint32(to, uint32(stretches))
		p.runs(func(from, end int) {
			to = le.AppendUint16(le.AppendUint16(to, uint16(from)), uint16(end-from))
		})
	case formMask:
		for _, w := range p.mask {
			to = le.AppendUint64(to, w)
		}
	}
	return p.gather(to)
}

func (p *Patch) appendHead(to []byte, form uint32, length int) []byte {
	le := binary.LittleEndian
	to = le.AppendUint32(le.AppendUint32(to, uint32(p.Page)), p.Had)
	return le.AppendUint32(le.AppendUint32(to, form), uint32(length))
}

var errPatch = errors.New("a patch of a page is damaged")

// Parse reads a patch of an object with that many pages, and returns the bytes behind it. The patch
// aliases b, so it is valid while b does not change.
func (p *Patch) Parse(b []byte, pages int) (rest []byte, err error) {
	if len(b) < patchHead {
		return b, errPatch
	}
	le := binary.LittleEndian
	page, form, length := le.Uint32(b), le.Uint32(b[8:]), le.Uint32(b[12:])
	p.begin(int(page), le.Uint32(b[4:]))
	if b = b[patchHead:]; uint64(page) >= uint64(pages) || uint64(length) > uint64(len(b)) {
		return b, errPatch
	}
	body, rest := b[:length], b[length:]
	switch form {
	case formPage:
		if len(body) != Page {
			return rest, errPatch
		}
		p.whole = body
		return rest, nil
	case formRuns:
		body, err = p.readRuns(body)
	case formMask:
		body, err = p.readMask(body)
	default:
		err = errPatch
	}
	if err != nil || len(body) != p.Bytes() {
		return rest, errPatch
	}
	p.scatter(body)
	return rest, nil
}

func (p *Patch) readRuns(body []byte) ([]byte, error) {
	if len(body) < 4 {
		return nil, errPatch
	}
	le := binary.LittleEndian
	n := le.Uint32(body)
	if body = body[4:]; uint64(n)*4 > uint64(len(body)) {
		return nil, errPatch
	}
	end := 0
	for range n {
		from, length := int(le.Uint16(body)), int(le.Uint16(body[2:]))
		if body = body[4:]; from < end || length == 0 || from+length > Page {
			return nil, errPatch
		}
		for end = from; end < from+length; end++ {
			p.mask[end/64] |= 1 << (end % 64)
		}
	}
	return body, nil
}

func (p *Patch) readMask(body []byte) ([]byte, error) {
	if len(body) < maskBytes {
		return nil, errPatch
	}
	for i := range p.mask {
		p.mask[i] = binary.LittleEndian.Uint64(body[8*i:])
	}
	return body[maskBytes:], nil
}
