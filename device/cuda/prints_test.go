//go:build linux && cgo

package cuda

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"muster/device"
	"muster/device/cuda/images"
)

// Whoever is told that a kernel has ended has its text, by whatever call that was. Taking standard
// output cannot be undone, so the test runs in its own process.
func TestPrints(t *testing.T) {
	if os.Getenv("MUSTER_TEST_PRINTS") == "" {
		theGPU(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestPrints$")
		cmd.Env = append(os.Environ(), "MUSTER_TEST_PRINTS=1")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, said)
		}
		return
	}
	testPrints("")
}

func TestPrintsOfAStandin(t *testing.T) {
	t.Setenv("STANDIN_KERNEL", "2000000") // most kernels have not ended when they are first asked for
	besideStandin(t, testPrints)
}

// testPrints panics where something is wrong: the process's standard output, where a test would say
// it, is taken.
func testPrints(library string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	all, err := Devices(Options{Library: library, TakeStdout: true})
	must(err)
	var printed bytes.Buffer
	c, err := all[0].Open(device.Config{Arena: device.Arena{Base: testBase, Size: 64 << 20}, Print: func(text []byte) { printed.Write(text) }})
	must(err)
	m, err := c.Load([]byte(printPTX))
	must(err)
	f, err := m.Function("say")
	must(err)
	s, err := c.NewStream()
	must(err)
	other, err := c.NewStream()
	must(err)
	e, err := c.NewEvent()
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()

	poll := func(done func() (bool, error)) {
		for {
			over, err := done()
			must(err)
			if over {
				return
			}
			must(ctx.Err())
			runtime.Gosched()
		}
	}
	within := func(of interface {
		Watch() func(time.Duration) (bool, error)
	}) func() (bool, error) {
		return func() (bool, error) { return of.Watch()(10 * time.Microsecond) }
	}
	ways := []struct {
		name string
		wait func()
	}{
		{"the stream is synchronised", func() { must(s.Synchronise(ctx)) }},
		{"the context is synchronised", func() { must(c.Synchronise(ctx)) }},
		{"the event is synchronised", func() { must(e.Synchronise(ctx)) }},
		{"the stream is asked", func() { poll(s.Done) }},
		{"the event is asked", func() { poll(e.Done) }},
		{"the stream is watched", func() { poll(within(s)) }},
		{"the event is watched", func() { poll(within(e)) }},
	}
	n := uint32(0)
	say := func(on device.Stream) string {
		n++
		launch := alone(binary.LittleEndian.AppendUint32(nil, n))
		if n%2 == 0 {
			must(on.Launch(f, launch))
		} else {
			_, _, err := on.Can().LaunchLater(f, launch, true)
			must(err)
		}
		return fmt.Sprintf("i %d\n", n)
	}
	check := func(what, want string) {
		if printed.String() != want {
			panic(fmt.Sprintf("when %s, %q was printed, want %q", what, printed.String(), want))
		}
		printed.Reset()
	}
	for range 6 {
		for _, w := range ways {
			want := say(s)
			must(s.Record(e))
			w.wait()
			check(w.name, want)

			// Neither does one stream's end stand for another's.
			want = say(s) + say(other)
			must(s.Record(e))
			w.wait()
			poll(other.Done)
			if w.name == "the context is synchronised" {
				check("both streams have ended", want)
				continue
			}
			if got := printed.String(); len(got) != len(want) {
				panic(fmt.Sprintf("when two streams have ended, one of them seen as %s, %q was printed, want %q", w.name, got, want))
			}
			printed.Reset()
		}
	}
	must(c.Close())
}

const printPTX = `.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[6] = {105, 32, 37, 100, 10, 0};
.visible .entry say(.param .u32 n) {
	.local .align 8 .b8 args[8];
	.reg .b64 %a<4>;
	.reg .b32 %r<3>;
	mov.u64 %a0, args;
	cvta.local.u64 %a1, %a0;
	ld.param.u32 %r0, [n];
	st.local.u32 [%a0], %r0;
	mov.u64 %a2, text;
	cvta.global.u64 %a3, %a2;
	{
	.param .b64 f;
	st.param.b64 [f], %a3;
	.param .b64 a;
	st.param.b64 [a], %a1;
	.param .b32 r;
	call.uni (r), vprintf, (f, a);
	ld.param.b32 %r1, [r];
	}
	ret;
}
`

// Images say whether their kernels print, compressed ones too.
func TestMayPrint(t *testing.T) {
	hopper := device.Compute{Major: 9}
	for _, c := range []struct {
		what  string
		image []byte
		want  bool
	}{
		{"PTX that prints", []byte(printPTX), true},
		{"PTX that does not", []byte(standinPTX), false},
		{"a fat binary of cubins", cubinFatbin, false},
		{"a fat binary of PTX", basicFatbin, false},
		{"what cannot be read", append([]byte("\x50\xed\x55\xba"), make([]byte, 3)...), true},
	} {
		if got := mayPrint(images.CodeOf(c.image, hopper)); got != c.want {
			t.Errorf("%s may print: %v", c.what, got)
		}
	}
}
