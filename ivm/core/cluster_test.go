package core

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// cluster is a few nodes with copies of objects, and messages between them, in one goroutine.
type cluster struct {
	size    uint64
	masters []int // the node of each object's master
	copies  [][]*copied
}

// copied is a node's copy of an object.
type copied struct {
	mem, base []byte // base: the shadow or the twin
	master    *Master
	mirror    *Mirror
}

func newCluster(nodes int, size uint64, masters ...int) *cluster {
	c := &cluster{size: size, masters: masters}
	bytes := Pages(size) * Page
	for n := range nodes {
		var row []*copied
		for _, at := range masters {
			x := &copied{mem: make([]byte, bytes), base: make([]byte, bytes)}
			if at == n {
				x.master = NewMaster(x.mem, x.base)
			} else {
				x.mirror = NewMirror(x.mem, x.base)
			}
			row = append(row, x)
		}
		c.copies = append(c.copies, row)
	}
	return c
}

// assign makes the cluster equal to another one of its shape, of whose pages only the first bytes
// are used.
func (c *cluster) assign(from *cluster, bytes int) {
	for n, row := range from.copies {
		for o, x := range row {
			y := c.copies[n][o]
			copy(y.mem[:bytes], x.mem)
			copy(y.base[:bytes], x.base)
			if x.master != nil {
				copy(y.master.versions, x.master.versions)
			} else {
				copy(y.mirror.versions, x.mirror.versions)
			}
		}
	}
}

// a put or get, in the steps in which it happens: begin on the caller's node, serve at the
// master, end on the caller's node again.
type exchange struct {
	node, object int
	r            Range
	put, fill    bool

	sent     []byte   // patches
	have     []uint32 // versions
	pages    []sentPage
	confirms []sentPage
}

type sentPage struct {
	page    int
	version uint32
	data    []byte
}

func (c *cluster) mirrorOf(x *exchange) *Mirror { return c.copies[x.node][x.object].mirror }
func (c *cluster) masterOf(x *exchange) *Master {
	return c.copies[c.masters[x.object]][x.object].master
}

// begin says whether there is anything to send.
func (c *cluster) begin(x *exchange) bool {
	m := c.mirrorOf(x)
	if m == nil {
		return false // the master is here: put and get have no effect
	}
	if !x.put {
		x.have = m.Have(x.r)
		return true
	}
	first, count := x.r.Pages()
	var p Patch
	for page := first; page < first+count; page++ {
		if m.Changes(x.r, page, &p) {
			x.sent = p.Append(x.sent)
		}
	}
	return len(x.sent) > 0
}

func (c *cluster) serve(x *exchange) {
	m := c.masterOf(x)
	if !x.put {
		first, _ := x.r.Pages()
		_ = m.Since(first, x.have, func(page int, version uint32, data []byte) error {
			x.pages = append(x.pages, sentPage{page, version, slices.Clone(data)})
			return nil
		})
		return
	}
	for rest := x.sent; len(rest) > 0; {
		p := &Patch{}
		var err error
		if rest, err = p.Parse(rest, Pages(c.size)); err != nil {
			panic(err)
		}
		x.confirms = append(x.confirms, sentPage{page: p.Page, version: m.Apply(p)})
	}
}

func (c *cluster) end(x *exchange) {
	m := c.mirrorOf(x)
	if x.put {
		for _, p := range x.confirms {
			m.Confirm(p.page, p.version)
		}
		return
	}
	first, count := x.r.Pages()
	at := 0
	for page := first; page < first+count; page++ {
		switch {
		case at < len(x.pages) && x.pages[at].page == page && x.fill:
			m.Fill(page, x.pages[at].version, x.pages[at].data)
			at++
		case at < len(x.pages) && x.pages[at].page == page:
			m.Update(x.r, page, x.pages[at].version, x.pages[at].data)
			at++
		case !x.fill:
			m.Revert(x.r, page)
		}
	}
}

// do does all of it at once, and says how many pages or bytes of patches moved.
func (c *cluster) do(x *exchange) (moved int) {
	if !c.begin(x) {
		return 0
	}
	c.serve(x)
	c.end(x)
	for _, p := range x.pages {
		if p.data != nil {
			moved++
		}
	}
	return moved + len(x.sent)
}

func (c *cluster) put(node, object int, r Range) int {
	return c.do(&exchange{node: node, object: object, r: r, put: true})
}
func (c *cluster) get(node, object int, r Range) int {
	return c.do(&exchange{node: node, object: object, r: r})
}

// mapAll maps a range as a daemon does: what is missing is fetched.
func (c *cluster) mapAll(node, object int, r Range) int {
	m := c.copies[node][object].mirror
	if m == nil {
		return 0
	}
	missing, any := m.Missing(r)
	if !any {
		return 0
	}
	return c.do(&exchange{node: node, object: object, r: missing, fill: true})
}

func (c *cluster) mem(node, object int) []byte { return c.copies[node][object].mem }

func whole(size uint64) Range { return Range{0, size} }

// print is what tells states of a cluster apart where only the first bytes of pages are used.
func (c *cluster) print(bytes int) string {
	var b []byte
	for _, row := range c.copies {
		for _, x := range row {
			b = append(append(b, x.mem[:bytes]...), x.base[:bytes]...)
			var v []uint32
			if x.master != nil {
				v = x.master.versions
			} else {
				v = x.mirror.versions
			}
			for _, version := range v {
				b = binary.LittleEndian.AppendUint32(b, version)
			}
		}
	}
	return fmt.Sprintf("%x", b)
}
