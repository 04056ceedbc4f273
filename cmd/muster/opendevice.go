package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"muster/client"
	"muster/device"
	"muster/device/cuda"
	"muster/device/fault"
	"muster/device/remote"
	"muster/device/soft"
	"muster/internal/machine"
	"muster/internal/wholefile"
	"muster/model"
	"muster/node"
	"muster/node/nodefile"
	"muster/node/worker"
	"muster/ptx/simt"
	"muster/wire"
	"muster/wire/control"
)

// openDevice opens a device of any kind. With a lock it is one of several
// processes that stand for the same software device.
func openDevice(c control.DeviceConfig, lock *os.File) (device.Device, error) {
	d, err := openSound(c, lock)
	if err != nil || c.Faults == "" {
		return d, err
	}
	return withFaults(d, c.Faults)
}

// rulesLimit is more than any test has.
var rulesLimit = wholefile.Limit{Bytes: 1 << 20, Remedy: "is it a file with rules for device/fault?"}

// withFaults lets a device fail by the rules of a file, for tests.
func withFaults(d device.Device, file string) (device.Device, error) {
	text, err := rulesLimit.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the rules by which the device is to fail: %w", err)
	}
	rules, err := fault.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("the rules by which the device is to fail: %s: %w", file, err)
	}
	return fault.Wrap(d, rules, time.Sleep).Whole(), nil
}

// openSound opens a device that fails by itself only.
func openSound(c control.DeviceConfig, lock *os.File) (device.Device, error) {
	switch c.Kind {
	case "soft":
		return openSoft(c, lock)
	case "cuda":
		// A worker prints nothing of its own.
		all, err := cuda.Devices(cuda.Options{TakeStdout: true})
		if err != nil {
			return nil, err
		}
		if c.Index < 0 || c.Index >= len(all) {
			return nil, fmt.Errorf("there is no CUDA device %d: the driver has %d", c.Index, len(all))
		}
		return all[c.Index], nil
	case node.KindRemote:
		return openRemote(c)
	case control.KindLent:
		return openLent(c, lock)
	}
	return nil, fmt.Errorf("there are no devices of kind %q: only soft, cuda and remote", c.Kind)
}

// openRemote opens a device that another node lends.
func openRemote(c control.DeviceConfig) (device.Device, error) {
	lender, err := lenderOf(c.Lender)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if c.Lender.Ticket != "" { // programs wait for the worker, and can do without this device
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		ctx = short
	}
	options := remote.Options{Lender: lender, Device: c.Index, Name: c.Name}
	if !c.Lender.Plain {
		options.Gateway = c.Lender.Address
	}
	d, err := remote.Open(ctx, options)
	if err != nil { // not a *remote.Device that is nil
		return nil, err
	}
	return d, nil
}

// openLent opens a device of this node by way of another worker, to which the daemon has connected us.
func openLent(c control.DeviceConfig, way *os.File) (device.Device, error) {
	conn, err := net.FileConn(way)
	if err != nil {
		return nil, err
	}
	local, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("the connection to another worker is no Unix socket")
	}
	d, err := remote.Over(local, c.Name)
	if err != nil { // not a *remote.Device that is nil
		return nil, err
	}
	return d, nil
}

// lenderOf is how a node is reached that lends devices.
func lenderOf(l control.Lender) (client.Remote, error) {
	if l.Ticket != "" {
		return lenderFor(l)
	}
	token := ""
	if l.Token != "" {
		text, err := tokenLimit.ReadFile(l.Token)
		if err != nil {
			return client.Remote{}, fmt.Errorf("the token of the node at %s: %w", l.Address, err)
		}
		token = strings.TrimSpace(string(text))
	}
	if l.Plain {
		return client.Remote{Dial: client.PlainDialler(l.Address, wire.PlainStream, token), Lane: client.PlainDialler(l.Address, wire.PlainLane, token)}, nil
	}
	config, err := client.LoadTLS(l.TLS)
	if err != nil {
		return client.Remote{}, fmt.Errorf("the certificates for the node at %s: %w", l.Address, err)
	}
	return client.Remote{Dial: client.Dialler(l.Address, config), Lane: client.LaneDialler(l.Address, config), Token: token}, nil
}

// lenderFor is lenderOf for a device that was borrowed: the ticket lets us in, and the authority vouches
// that it is that node which gets to know it.
func lenderFor(l control.Lender) (client.Remote, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(l.Authority)) {
		return client.Remote{}, errors.New("the authority that vouches for the lender is no certificate")
	}
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13, NextProtos: []string{wire.StreamProtocol}, DynamicRecordSizingDisabled: true}
	return client.Remote{Dial: client.Dialler(l.Address, config), Lane: client.LaneDialler(l.Address, config), Grant: l.Ticket}, nil
}

func openSoft(c control.DeviceConfig, lock *os.File) (device.Device, error) {
	id := sha256.Sum256(fmt.Appendf(nil, "software GPU %s %d", c.Name, c.Index))
	o := soft.Options{UUID: [16]byte(id[:16])}
	if c.Speed < 1 || c.Rate > 0 || c.CopyBandwidth > 0 {
		o.Clock = soft.SystemClock()
	}
	if lock != nil {
		turns, err := worker.NewTurns(lock)
		if err != nil {
			return nil, err
		}
		o.Turns = turns
	}
	p := soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, Rate: c.Rate, CopyBandwidth: c.CopyBandwidth, Workers: c.Workers, OwnProcess: c.OwnProcess}
	if c.Engine != "" {
		engine, ok := simt.ParseEngine(c.Engine)
		if !ok {
			return nil, fmt.Errorf("there is no engine %q: only %s", c.Engine, strings.Join(control.Engines, ", "))
		}
		p.Engine = engine
	}
	if list := os.Getenv(checkVariable); list != "" {
		checks, err := simt.ParseChecks(list)
		if err != nil {
			return nil, fmt.Errorf("$%s: %w", checkVariable, err)
		}
		p.Check, o.Found = checks, noteDefect
	}
	return soft.New(p, o)
}

// completeDevices puts in what only the machine knows: which devices there are
// if none was named, all that the driver has, and how many processors. note
// says what was chosen without being asked for.
func completeDevices(named []node.Device, inCluster bool) (devices []node.Device, note string, err error) {
	if named == nil {
		named, note, err = defaultDevices(inCluster)
		if err != nil {
			return nil, "", err
		}
	}
	for _, d := range named {
		switch {
		case d.Kind == "soft" && d.Workers == 0:
			d.Workers = machine.CPUs()
		case d.Kind == "cuda" && d.Index == nodefile.AllCUDA:
			all, err := cuda.Devices(cuda.Options{})
			if err != nil {
				return nil, "", err
			}
			for i := range all {
				d.Index = i
				devices = append(devices, d)
			}
			continue
		}
		devices = append(devices, d)
	}
	return devices, note, nil
}

// defaultDevices are what the machine has: its GPUs, or a software one. In a cluster,
// where jobs of all users would be given it, a software GPU must be named.
func defaultDevices(inCluster bool) ([]node.Device, string, error) {
	all, err := cuda.Devices(cuda.Options{})
	if err == nil {
		devices, err := nodefile.Devices("cuda:all")
		return devices, fmt.Sprintf("no devices are named: using the %s that the driver has", model.Plural(len(all), "GPU")), err
	}
	if !errors.Is(err, cuda.ErrNoDriver) {
		return nil, "", err
	}
	if inCluster {
		return []node.Device{}, "no GPU was found and no devices are named: programs here use GPUs of other nodes (--devices soft:memory=1G gives this one a software GPU)", nil
	}
	memory, err := machine.Memory()
	if err != nil {
		return nil, "", err
	}
	size := int64(min(1<<30, memory/4) &^ (2<<20 - 1))
	devices, err := nodefile.Devices(fmt.Sprintf("soft:memory=%d", size))
	return devices, fmt.Sprintf("no GPU was found and no devices are named: using a software GPU with %s of memory", model.FormatSize(size)), err
}
