package soft

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"muster/device"
)

// Suspend holds all streams.
func (c *Context) Suspend() error {
	return c.still(func() error {
		if c.suspended {
			return fmt.Errorf("the context is suspended already: %w", device.ErrInvalidValue)
		}
		c.suspended = true
		for _, s := range c.streams {
			s.held = true
		}
		return nil
	})
}

// Resume lets the held streams continue.
func (c *Context) Resume() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case !c.suspended:
		return fmt.Errorf("the context is not suspended: %w", device.ErrInvalidValue)
	}
	c.suspended = false
	for _, s := range c.streams {
		s.held = false
	}
	c.changed.Broadcast()
	return nil
}

// Stopped returns, of each held stream, the kernel that is running or next to run.
func (c *Context) Stopped() ([]device.StoppedKernel, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, c.err
	case !c.suspended:
		return nil, fmt.Errorf("kernels can be saved while the context is suspended: %w", device.ErrInvalidValue)
	}
	var all []device.StoppedKernel
	for _, s := range c.streams {
		k := s.first()
		if k == nil || !s.held {
			continue
		}
		state, err := k.save()
		if err != nil {
			return nil, fmt.Errorf("saving kernel %s: %w", k.function.info.Name, err)
		}
		all = append(all, device.StoppedKernel{Stream: s, Function: k.function.info.Name, State: state})
	}
	return all, nil
}

// A stopped kernel is saved as stateMagic, a stateHead, the kernel's name, the engine's state, and
// the SHA-256 sum of all of these. Numbers are little-endian.
const stateMagic = "soft kernel 2\n"

type stateHead struct {
	Arena     device.Arena
	Module    [sha256.Size]byte // hash of the PTX text
	Variables uint64            // address of the module's variables
	Name      uint32            // length of the name in bytes
	Engine    uint64            // length of the engine's state in bytes
}

// save returns the kernel's state.
func (k *kernel) save() ([]byte, error) {
	engine, err := k.execution.Save()
	if err != nil {
		return nil, err
	}
	m, name := k.function.module, k.function.info.Name
	var b bytes.Buffer
	b.WriteString(stateMagic)
	head := stateHead{m.c.mem.arena.at, m.hash, m.at.from, uint32(len(name)), uint64(len(engine))}
	if err := binary.Write(&b, binary.LittleEndian, head); err != nil {
		return nil, err
	}
	b.WriteString(name)
	b.Write(engine)
	sum := sha256.Sum256(b.Bytes())
	return append(b.Bytes(), sum[:]...), nil
}

// state is a decoded stopped kernel.
type state struct {
	stateHead
	name   string
	engine []byte
}

var errState = errors.New("not the state of a stopped kernel, or damaged")

// readState reads what save wrote.
func readState(text []byte) (*state, error) {
	body := len(text) - sha256.Size
	if body < len(stateMagic)+binary.Size(stateHead{}) || !bytes.HasPrefix(text, []byte(stateMagic)) {
		return nil, errState
	}
	if sum := sha256.Sum256(text[:body]); !bytes.Equal(sum[:], text[body:]) {
		return nil, errState
	}
	rest := bytes.NewReader(text[len(stateMagic):body])
	s := &state{}
	if err := binary.Read(rest, binary.LittleEndian, &s.stateHead); err != nil {
		return nil, errState
	}
	tail := text[body-rest.Len() : body]
	if uint64(s.Name) > uint64(len(tail)) || s.Engine != uint64(len(tail))-uint64(s.Name) {
		return nil, errState
	}
	s.name, s.engine = string(tail[:s.Name]), tail[s.Name:]
	return s, nil
}

// Restore puts a stopped kernel on a stream.
func (c *Context) Restore(to device.Stream, text []byte) error {
	own, ok := to.(*stream)
	if !ok || own.c != c {
		return fmt.Errorf("a stream of another context: %w", device.ErrInvalidValue)
	}
	st, err := readState(text)
	if err != nil {
		return fmt.Errorf("%w: %w", err, device.ErrInvalidValue)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := own.usable(); err != nil {
		return err
	}
	if own.pending() {
		return fmt.Errorf("the stream has work: give one that has none: %w", device.ErrInvalidValue)
	}
	k, err := c.revive(st)
	if err != nil {
		return err
	}
	own.push(k)
	return nil
}

// revive finds the module of a saved kernel and makes the kernel ready to continue. Arena and
// addresses of variables must be the same as before, since the kernel's registers hold addresses.
func (c *Context) revive(st *state) (*kernel, error) {
	elsewhere := false
	for _, m := range c.modules {
		if m.hash != st.Module {
			continue
		}
		if m.at.from != st.Variables {
			elsewhere = true
			continue
		}
		f := m.program.Kernel(st.name)
		if f == nil {
			break
		}
		if own := c.mem.arena.at; st.Arena != own {
			return nil, fmt.Errorf("kernel %s: its arena is %d bytes at %#x, this one %d at %#x: open the same: %w", st.name, st.Arena.Size, st.Arena.Base, own.Size, own.Base, device.ErrInvalidValue)
		}
		x, err := f.Resume(c.launch(), st.engine)
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %w: %w", st.name, err, device.ErrInvalidValue)
		}
		return &kernel{function: m.function(f), execution: x}, nil
	}
	if elsewhere {
		return nil, fmt.Errorf("kernel %s: the variables of its module lie elsewhere: load and unload the images in the order in which it was done before: %w", st.name, device.ErrInvalidValue)
	}
	return nil, fmt.Errorf("kernel %s: its module is not loaded: %w", st.name, device.ErrNotFound)
}
