package noderuntime

import (
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/node"
	"muster/wire/control"
)

// card is a GPU of the paper.
type card struct {
	name   string
	cores  int
	clock  float64 // GHz; the C1060's and the GTX 480's are not in the text, but on the cards
	memory float64 // GiB
}

var (
	c2050  = card{"Tesla C2050", 14 * 32, 1.15, 3}
	c1060  = card{"Tesla C1060", 30 * 8, 1.30, 4}
	gtx480 = card{"GeForce GTX 480", 15 * 32, 1.40, 1}
)

func (c card) power() float64 { return float64(c.cores) * c.clock }

// referenceSpeed is that of the C2050. It is far below 1, so that all devices
// together take a part of one processor and each of them really is what its
// users wait for.
const referenceSpeed = 0.04

// pcie is bytes a second over PCI Express 2.0 with 16 lanes, as programs get it.
const pcie = 5e9

// scale is by how much an experiment is smaller than the paper's.
type scale struct {
	time   float64 // a second of the paper's takes so long
	memory float64 // a byte of the paper's is so many
}

// The scales. Memory shrinks more than time where it moves, since moving it
// costs real time; the bandwidth follows from both.
var (
	short = scale{time: 1.0 / 25, memory: 1.0 / 32}   // short programs
	long  = scale{time: 1.0 / 200, memory: 1.0 / 256} // long ones
)

// multi is for programs of several processes. Their memory is small and stays
// as it is, and so does the bandwidth.
var multi = scale{time: 1.0 / 10, memory: 1.0 / 16}

const granule = 2 << 20 // of device memory

// profile is what stands for a card.
func (s scale) profile(c card) control.DeviceConfig {
	memory := max(2, uint64(c.memory*(1<<30)*s.memory/granule)) * granule
	bandwidth := pcie * s.memory / s.time
	if s == multi {
		bandwidth = pcie
	}
	return control.DeviceConfig{
		Kind: "soft", Name: c.name, Memory: memory, Speed: referenceSpeed * c.power() / c2050.power(),
		CopyBandwidth: uint64(bandwidth), Workers: 1,
	}
}

// duration scales a time of the paper's.
func (s scale) duration(seconds float64) time.Duration {
	return time.Duration(seconds * s.time * float64(time.Second))
}

func (s scale) devices(cards ...card) []node.Device {
	var all []node.Device
	for i, c := range cards {
		d := node.Device{DeviceConfig: s.profile(c)}
		d.Index = i
		all = append(all, d)
	}
	return all
}

// openSoft makes a device as workers do, but for this process alone.
func openSoft(c control.DeviceConfig) (device.Device, error) {
	return soft.New(
		soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, CopyBandwidth: c.CopyBandwidth, Workers: c.Workers},
		soft.Options{Clock: soft.SystemClock()})
}
