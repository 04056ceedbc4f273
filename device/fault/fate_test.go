package fault

import (
	"errors"
	"path/filepath"
	"testing"

	"muster/device"
)

const wild = `.version 7.0
.target sm_70
.address_size 64
.visible .entry wild()
{
	.reg .b64 %a;
	mov.u64 %a, 8;
	st.global.u64 [%a], %a;
	ret;
}
`

// A context that faults takes the others along, whichever call is the first to answer with the fault.
func TestSharedFate(t *testing.T) {
	t.Setenv(device.MPSVariable, t.TempDir())
	for name, call := range map[string]func(w *wrapped) error{
		"synchronise": func(w *wrapped) error { return w.stream.Synchronise(t.Context()) },
		"done":        func(w *wrapped) error { _, err := w.stream.Done(); return err },
		"err":         func(w *wrapped) error { return w.ctx.Err() },
		"launch":      func(w *wrapped) error { return w.stream.Fill(base, 0, 1, 1) },
		"new stream":  func(w *wrapped) error { _, err := w.ctx.NewStream(); return err },
		"new event":   func(w *wrapped) error { _, err := w.ctx.NewEvent(); return err },
		"load":        func(w *wrapped) error { _, err := w.ctx.Load([]byte(wild)); return err },
		"map":         func(w *wrapped) error { return w.ctx.Map(base+granule, granule) },
		"unmap":       func(w *wrapped) error { return w.ctx.Unmap(base, granule) },
	} {
		t.Run(name, func(t *testing.T) {
			rules := "any:shared=" + filepath.Join(t.TempDir(), "fate") + ":fail=illegal-address"
			guilty, other := wrap(t, rules), wrap(t, rules)
			guilty.ok(guilty.ctx.Map(base, granule))
			m, err := guilty.ctx.Load([]byte(wild))
			guilty.ok(err)
			f, err := m.Function("wild")
			guilty.ok(err)
			guilty.ok(guilty.stream.Launch(f, device.Launch{Grid: device.Dim{X: 1, Y: 1, Z: 1}, Block: device.Dim{X: 1, Y: 1, Z: 1}}))
			var fault *device.Fault
			if err := guilty.ctx.Can().Self.Synchronise(t.Context()); !errors.As(err, &fault) {
				t.Fatal("the kernel does not fault:", err)
			}
			other.ok(other.ctx.Err())
			if err := call(guilty); err == nil {
				t.Fatal("the call does not answer with the fault")
			}
			if err := other.ctx.Err(); !errors.As(err, &fault) {
				t.Error("the other context does not fault:", err)
			}
		})
	}
}
