// Package clientfile writes a client of a worker to the file of a checkpoint, and reads one: its core's saved
// value, its memory on the host, and, if its program is saved too, the memory that both share. It knows neither
// devices nor the daemon.
package clientfile

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"muster/node/checkpoint"
	"muster/node/clientcore"
	"muster/node/worker/hostcopy"
	"muster/node/worker/told"
	"muster/vmm"
	"muster/wire"
)

// Client is what a worker has of its client beside the core.
type Client struct {
	Shared   *wire.Shared
	Consumer *wire.Consumer
	Host     *hostcopy.Memory
	Told     *told.Told
	Files    []*os.File // of the memory that is shared: the ring and the data arena
	Arena    vmm.Range
}

// Draft is a checkpoint that is being written.
type Draft struct {
	File   *os.File
	out    *bufio.Writer
	writer *checkpoint.Writer
}

// Close closes the file.
func (d *Draft) Close() { d.File.Close() }

// Write writes the GPU side of a client that has left its device. If the client is held, the
// file is not complete until Complete.
func (c *Client) Write(d *Draft, core *clientcore.Core, identity string, held bool) (uint64, error) {
	if err := core.Alone(); err != nil {
		return 0, err
	}
	save := core.SavePoint
	about := checkpoint.About{Taken: time.Now().UTC(), Identity: identity, ArenaBase: c.Arena.Addr, ArenaSize: c.Arena.Size}
	if held {
		save = core.Save
		about.Shared = c.state(core)
	} else if core.Result() != 0 {
		return 0, errors.New("a fault has ended the program's work on the GPU, and there is nothing to save")
	}
	saved, err := save()
	if err != nil {
		return 0, err
	}
	d.out = bufio.NewWriterSize(d.File, 256<<10)
	d.writer = checkpoint.NewWriter(d.out, about)
	d.writer.Core(saved)
	all := core.Allocations()
	d.writer.Allocations(all)
	for _, r := range overlaps(all, core.Held()) {
		for at := range chunks(r) {
			_ = c.Host.Each(at, func(addr uint64, piece []byte) error {
				d.writer.Piece(checkpoint.Memory, addr, piece)
				return nil
			})
		}
	}
	if held {
		return d.writer.Bytes(), d.writer.Err()
	}
	return d.end()
}

func (d *Draft) end() (uint64, error) {
	if err := errors.Join(d.writer.End(), d.out.Flush()); err != nil {
		return 0, fmt.Errorf("writing the checkpoint: %w", err)
	}
	return d.writer.Bytes(), nil
}

// state is the worker's position in the memory that it shares with the program.
func (c *Client) state(core *clientcore.Core) *checkpoint.Shared {
	g := c.Shared.Geometry()
	state := &checkpoint.Shared{RingSize: g.RingBytes(), ArenaSize: g.Arena(), Asked: map[int]uint32{}}
	state.Head, state.Seq = c.Consumer.Position()
	for _, slot := range core.WaitingSlots() {
		state.Asked[slot] = c.Shared.Asks(slot)
	}
	state.Printed, state.Turns, _ = c.Told.Printed.All()
	return state
}

// Complete completes the file of a held client, once its program is stopped.
func (c *Client) Complete(d *Draft) (uint64, error) {
	for i, kind := range []checkpoint.Kind{checkpoint.Ring, checkpoint.Data} {
		err := wire.Contents(c.Files[i], checkpoint.MaxPiece, func(offset uint64, data []byte) error {
			d.writer.Piece(kind, offset, data)
			return d.writer.Err()
		})
		if err != nil {
			return 0, err
		}
	}
	return d.end()
}

// Incoming is a client that was read from a file.
type Incoming struct {
	File  *os.File
	Saved *checkpoint.File
	By    *clientcore.Core
	Whole bool // with its program
}

// Read checks a whole file, and that this client can become the one in it. Find finds memory of the program.
func (c *Client) Read(file *os.File, core *clientcore.Core, identity string, find clientcore.Pinned, whole bool) (*Incoming, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	saved, err := checkpoint.Open(file, info.Size())
	if err != nil {
		return nil, err
	}
	if err := c.fits(saved, identity, whole); err != nil {
		return nil, err
	}
	by, err := clientcore.Rehomed(saved.Core, find, core.Config())
	if err != nil {
		return nil, err
	}
	if !slices.Equal(by.Allocations(), saved.Allocations) || !slices.Equal(overlaps(saved.Written, by.Held()), saved.Written) {
		return nil, fmt.Errorf("%w: its memory is not that of its client", checkpoint.ErrFile)
	}
	if !answerable(by.Waiting(), saved.About.Shared) {
		return nil, fmt.Errorf("%w: answers that no program waits for", checkpoint.ErrFile)
	}
	return &Incoming{File: file, Saved: saved, By: by, Whole: whole}, nil
}

// answerable says whether all slots in which a saved program waits for answers exist. The file may
// be damaged or forged.
func answerable(waiting []wire.Header, shared *checkpoint.Shared) bool {
	for _, h := range waiting {
		if h.Slot < -1 || h.Slot >= wire.Slots {
			return false
		}
	}
	if shared == nil {
		return true
	}
	for slot := range shared.Asked {
		if slot < 0 || slot >= wire.Slots {
			return false
		}
	}
	return true
}

// fits returns why a file cannot be restored into this client.
func (c *Client) fits(saved *checkpoint.File, identity string, whole bool) error {
	shared, g := saved.About.Shared, c.Shared.Geometry()
	switch {
	case saved.Core == nil:
		return errors.New("the file holds memory alone: it was written by musterCheckpoint, and the program reads it with musterRestore")
	case whole && shared == nil:
		return errors.New("the file is of a client alone, without its program")
	case whole && (shared.RingSize != g.RingBytes() || shared.ArenaSize != g.Arena()):
		return errors.New("the memory that program and node shared has other sizes on this node: use the Muster that wrote it")
	case !whole && saved.About.Identity != identity:
		return errors.New("the file is of another run of a program, which knows its memory, modules and streams by other numbers: a program that was started anew gets its memory with musterRestore")
	}
	if !whole {
		return nil
	}
	same := false
	err := saved.Each(checkpoint.Ring, func(at uint64, data []byte) error {
		same = same || at == 0 && c.Shared.SameGeometry(data)
		return nil
	})
	if err == nil && !same {
		err = errors.New("the program and this node are from different builds of Muster: use the one that wrote the checkpoint")
	}
	return err
}

// Fill fills the memory from the file: held is what the client has on the host. Replaced is called before the
// memory that is shared with the program is.
func (c *Client) Fill(in *Incoming, held []vmm.Range, replaced func()) error {
	for _, r := range held {
		c.Host.Zero(r)
	}
	err := in.Saved.Each(checkpoint.Memory, func(addr uint64, data []byte) error {
		r := vmm.Range{Addr: addr, Size: uint64(len(data))}
		c.Host.Touch(r, false)
		return c.Host.Each(r, func(at uint64, piece []byte) error {
			copy(piece, data[at-addr:])
			return nil
		})
	})
	if err != nil || !in.Whole {
		return err
	}
	replaced() // from here on its messages are not those of the ring
	for i, kind := range []checkpoint.Kind{checkpoint.Ring, checkpoint.Data} {
		err := in.Saved.Each(kind, func(offset uint64, data []byte) error {
			_, err := c.Files[i].WriteAt(data, int64(offset))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// chunks splits a range at chunk boundaries.
func chunks(r vmm.Range) func(func(vmm.Range) bool) {
	return func(yield func(vmm.Range) bool) {
		for r.Size > 0 {
			n := min(hostcopy.Chunk-r.Addr%hostcopy.Chunk, r.Size)
			if !yield(vmm.Range{Addr: r.Addr, Size: n}) {
				return
			}
			r = vmm.Range{Addr: r.Addr + n, Size: r.Size - n}
		}
	}
}

// overlaps returns the intersection of two lists of ranges, each in order.
func overlaps(a, b []vmm.Range) []vmm.Range {
	var both []vmm.Range
	for len(a) > 0 && len(b) > 0 {
		endA, endB := a[0].Addr+a[0].Size, b[0].Addr+b[0].Size
		if from, to := max(a[0].Addr, b[0].Addr), min(endA, endB); from < to {
			both = append(both, vmm.Range{Addr: from, Size: to - from})
		}
		if endA < endB {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}
