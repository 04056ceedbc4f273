package core

import "testing"

// What comparing costs, a page: of pages of which all bytes have changed, few, or none.
func BenchmarkPut(b *testing.B) {
	const pages = 256
	for _, c := range []struct {
		name string
		step int // every so many bytes one changes
	}{{"all", 1}, {"a byte in eight", 8}, {"one byte", Page}} {
		b.Run(c.name, func(b *testing.B) {
			m := NewMirror(make([]byte, pages*Page), make([]byte, pages*Page))
			master := NewMaster(make([]byte, pages*Page), make([]byte, pages*Page))
			for i := range m.versions {
				m.Fill(i, 1, nil)
				master.look(i)
			}
			buffer := make([]byte, 0, 2*MaxPatch)
			var p, q Patch
			b.SetBytes(Page)
			for i := range b.N {
				page := i % pages
				for j := page * Page; j < (page+1)*Page; j += c.step {
					m.mem[j]++
				}
				if m.Changes(Range{uint64(page) * Page, Page}, page, &p) {
					buffer = p.Append(buffer[:0])
					_, _ = q.Parse(buffer, pages)
					m.Confirm(page, master.Apply(&q))
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	const pages = 256
	m := NewMirror(make([]byte, pages*Page), make([]byte, pages*Page))
	master := NewMaster(make([]byte, pages*Page), make([]byte, pages*Page))
	b.SetBytes(Page)
	for i := range b.N {
		page := i % pages
		master.mem[page*Page]++
		r := Range{uint64(page) * Page, Page}
		_ = master.Since(page, m.Have(r), func(page int, version uint32, data []byte) error {
			m.Update(r, page, version, data)
			return nil
		})
	}
}
