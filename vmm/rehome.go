package vmm

import "fmt"

// Rehomed returns a space with the same allocations and the same contents on the host, for other
// devices and another limit. No device may hold anything.
func (s *Space) Rehomed(c Config) (*Space, error) {
	for _, p := range s.config.Devices {
		if n := s.Mapped(p); n > 0 {
			return nil, fmt.Errorf("%w: %d bytes are on %v", ErrInvalid, n, p)
		}
	}
	if c.Chunk != s.config.Chunk {
		return nil, fmt.Errorf("%w: chunks of %d bytes instead of %d", ErrInvalid, c.Chunk, s.config.Chunk)
	}
	fresh, err := New(c)
	if err != nil {
		return nil, err
	}
	moved := map[*allocation]*allocation{}
	for at := s.allocations.first(); at.get() != nil; at = at.next() {
		a := at.get()
		if err := fresh.Alloc(a.Range); err != nil {
			return nil, err
		}
		moved[a] = fresh.around(a.Addr)
	}
	for from, to := range moved {
		for _, child := range from.children {
			if child, ok := moved[child]; ok { // else it was freed
				to.children = append(to.children, child)
			}
		}
	}
	for i, c := range s.all() {
		for _, to := range fresh.in(fresh.span(s.rangeOf(span{i, 1}))) {
			host := c.valid & hostSlot.bit()
			fresh.set(to, host, host, c.fill)
		}
	}
	return fresh, nil
}
