// Package devices opens devices of every kind by what a node's configuration says of them, and knows
// which ones a machine has if the configuration says nothing. It is the one place that knows all
// backends: the daemon and its workers are handed it, and know only the contract.
package devices

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muster/device"
	"muster/device/cuda"
	"muster/device/fault"
	"muster/device/remote"
	"muster/device/soft"
	"muster/internal/confine"
	"muster/internal/wholefile"
	"muster/node/settings"
	"muster/node/worker/turnlock"
	"muster/ptx/simt"
	"muster/wire"
	"muster/wire/client"
	"muster/wire/control"
	"muster/wire/trust"
)

// Open opens a device of any kind. With a lock the calling process is one of several that stand for
// the same software device, and takes turns with them.
func Open(c control.DeviceConfig, lock *os.File) (device.Device, error) {
	d, err := openSound(c, lock)
	if err != nil || c.Faults == "" {
		return d, err
	}
	return withFaults(d, c.Faults)
}

// Needs is what a worker must reach of the system to open and use a device, beside what every worker
// reaches.
func Needs(c control.DeviceConfig) (r confine.Rules) {
	r.Write = []string{os.Getenv(checkReportVariable)}
	if c.Faults != "" { // the files that its rules name are in the same folder
		r.Write = append(r.Write, filepath.Dir(c.Faults))
	}
	switch c.Kind {
	case "cuda":
		r.Devices, r.Write, r.Threads, r.Sockets = cuda.Files(), append(r.Write, cuda.Folders()...), true, true
	case settings.KindRemote:
		r.Read, r.Connect = []string{c.Lender.TLS, c.Lender.Token, c.Lender.Revoked}, true
	}
	return r
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
	return fault.Wrap(d, rules, time.Sleep), nil
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
	case settings.KindRemote:
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

// tokenLimit is more than any token has.
var tokenLimit = wholefile.Limit{Bytes: 64 << 10, Remedy: "is it the file with the lender's token?"}

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
		return client.Plain(l.Address, token), nil
	}
	config, err := client.LoadTLS(l.TLS)
	if err != nil {
		return client.Remote{}, fmt.Errorf("the certificates for the node at %s: %w", l.Address, err)
	}
	return client.Secure(l.Address, config, token), nil
}

// lenderFor is lenderOf for a device that was borrowed: the lender admits the holder of the ticket, and
// the authority vouches that it is the lender that gets to know the ticket.
func lenderFor(l control.Lender) (client.Remote, error) {
	believed, err := trust.BelieveText(l.Authority, l.Revoked)
	if err != nil {
		return client.Remote{}, fmt.Errorf("the authority that vouches for the lender: %w", err)
	}
	role := trust.Role(trust.Node)
	if l.Granted { // the issuer of the grant says who the lender is, and may have made its certificate
		role = trust.Anyone
	}
	r := client.Secure(l.Address, trust.Dial(believed, role, wire.StreamProtocol), "")
	r.Grant = l.Ticket
	return r, nil
}

func openSoft(c control.DeviceConfig, lock *os.File) (device.Device, error) {
	id := sha256.Sum256(fmt.Appendf(nil, "software GPU %s %d", c.Name, c.Index))
	o := soft.Options{UUID: [16]byte(id[:16])}
	if c.Speed < 1 || c.Rate > 0 || c.CopyBandwidth > 0 {
		o.Clock = soft.SystemClock()
	}
	if lock != nil {
		turn, err := turnlock.New(lock)
		if err != nil {
			return nil, err
		}
		o.Turns = turn
	}
	p := soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, Rate: c.Rate, CopyBandwidth: c.CopyBandwidth, Workers: c.Workers, OwnProcess: c.OwnProcess}
	if c.Engine != "" {
		engine, ok := simt.ParseEngine(c.Engine)
		if !ok {
			return nil, fmt.Errorf("there is no engine %q: only %s", c.Engine, strings.Join(control.Engines, ", "))
		}
		p.Engine = engine
	}
	checks, found, err := checksWanted(os.Getenv)
	if err != nil {
		return nil, err
	}
	p.Check, o.Found = checks, found
	return soft.New(p, o)
}
