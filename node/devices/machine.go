package devices

import (
	"errors"
	"fmt"

	"muster/device/cuda"
	"muster/internal/machine"
	"muster/internal/units"
	"muster/node/nodefile"
	"muster/node/settings"
)

// Complete puts in what only the machine knows: which devices there are if none was named, all that
// the driver has where cuda:all was, and how many processors a software GPU uses. note says what was
// chosen without being asked for.
func Complete(named []settings.Device, inCluster bool) (devices []settings.Device, note string, err error) {
	return complete(named, inCluster, func() (int, error) {
		all, err := cuda.Devices(cuda.Options{})
		return len(all), err
	})
}

// complete is Complete; gpus counts what the driver has, and fails with cuda.ErrNoDriver without one.
func complete(named []settings.Device, inCluster bool, gpus func() (int, error)) (devices []settings.Device, note string, err error) {
	if named == nil {
		named, note, err = byDefault(inCluster, gpus)
		if err != nil {
			return nil, "", err
		}
	}
	for _, d := range named {
		switch {
		case d.Kind == "soft" && d.Workers == 0:
			d.Workers = machine.CPUs()
		case d.Kind == "cuda" && d.Index == nodefile.AllCUDA:
			n, err := gpus()
			if err != nil {
				return nil, "", err
			}
			for i := range n {
				d.Index = i
				devices = append(devices, d)
			}
			continue
		}
		devices = append(devices, d)
	}
	return devices, note, nil
}

// byDefault is what the machine has: its GPUs, or a software one. In a cluster, where jobs of all users
// would be given it, a software GPU must be named.
func byDefault(inCluster bool, gpus func() (int, error)) ([]settings.Device, string, error) {
	n, err := gpus()
	if err == nil {
		devices, err := nodefile.Devices("cuda:all")
		return devices, fmt.Sprintf("no devices are named: using the %s that the driver has", units.Plural(n, "GPU")), err
	}
	if !errors.Is(err, cuda.ErrNoDriver) {
		return nil, "", err
	}
	if inCluster {
		return []settings.Device{}, "no GPU was found and no devices are named: programs here use GPUs of other nodes (--devices soft:memory=1G gives this one a software GPU)", nil
	}
	memory, err := machine.Memory()
	if err != nil {
		return nil, "", err
	}
	size := int64(min(1<<30, memory/4) &^ (2<<20 - 1))
	devices, err := nodefile.Devices(fmt.Sprintf("soft:memory=%d", size))
	return devices, fmt.Sprintf("no GPU was found and no devices are named: using a software GPU with %s of memory", units.FormatSize(size)), err
}
