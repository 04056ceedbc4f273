package phased

import "testing"

func BenchmarkSource(b *testing.B) {
	w, err := Paper("W4", 24)
	if err != nil {
		b.Fatal(err)
	}
	s := w.Source(1, 7, 1)
	b.ReportAllocs()
	sum := int64(0)
	for b.Loop() {
		d := s.Next()
		sum += int64(d.CPU+d.GPU) + d.In + d.Out
	}
	_ = sum
}
