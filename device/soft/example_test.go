package soft_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"

	"muster/device"
	"muster/device/soft"
)

// A kernel that squares numbers, from PTX text to results.
func Example() {
	const text = `
.version 6.4
.target sm_70
.address_size 64
.visible .entry square(.param .u64 numbers)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [numbers];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd1, %rd1, %rd2;
	ld.global.u32 %r2, [%rd1];
	mul.lo.u32 %r2, %r2, %r2;
	st.global.u32 [%rd1], %r2;
	ret;
}
`
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	gpu, err := soft.New(soft.Profile{Name: "laptop", Memory: 1 << 30, Speed: 1, Workers: 2}, soft.Options{})
	check(err)
	const arena = 0x6400_0000_0000
	ctx, err := gpu.Open(device.Config{Arena: device.Arena{Base: arena, Size: 1 << 32}})
	check(err)
	defer ctx.Close()

	module, err := ctx.Load([]byte(text))
	check(err)
	square, err := module.Function("square")
	check(err)
	stream, err := ctx.NewStream()
	check(err)
	check(ctx.Map(arena, gpu.Info().Granularity))

	numbers := []byte{2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0}
	check(stream.CopyIn(arena, numbers))
	check(stream.Launch(square, device.Launch{
		Grid:   device.Dim{X: 1, Y: 1, Z: 1},
		Block:  device.Dim{X: 3, Y: 1, Z: 1},
		Params: binary.LittleEndian.AppendUint64(nil, arena),
	}))
	check(stream.CopyOut(numbers, arena))
	check(stream.Synchronise(context.Background()))
	fmt.Println(numbers)
	// Output: [4 0 0 0 9 0 0 0 16 0 0 0]
}
