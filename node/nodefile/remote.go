package nodefile

import (
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"muster/model/strictyaml"
	"muster/node/settings"
	"muster/wire/control"
)

// remote reads a device that another node lends.
func (d *decoder) remote(n strictyaml.Node) (settings.Device, error) {
	one := remoteDevice("")
	given, err := d.Fields(n, "remote",
		strictyaml.Key("address", strictyaml.Value(&d.File, "address", &one.Lender.Address, parseLender)),
		strictyaml.Key("device", d.Count("device", 0, math.MaxInt32, &one.Index)),
		strictyaml.Key("name", d.Text("name", &one.Name)),
		strictyaml.Key("tls", strictyaml.Value(&d.File, "tls", &one.Lender.TLS, parseFolder)),
		strictyaml.Key("token", strictyaml.Value(&d.File, "token", &one.Lender.Token, parseFolder)),
		strictyaml.Key("plain", d.Bool("plain", &one.Lender.Plain)),
	)
	if err == nil && !given["address"] {
		err = d.Errorf(strictyaml.Start(n), "this device of another node has no address: add address: HOST:PORT")
	}
	if err == nil {
		if wrong := checkWay(one.Lender); wrong != nil {
			err = d.Errorf(strictyaml.Start(n), "%v", wrong)
		}
	}
	return one, err
}

// remoteDevice is a device of another node, with default settings.
func remoteDevice(address string) settings.Device {
	return settings.Device{DeviceConfig: control.DeviceConfig{Kind: settings.KindRemote, Lender: control.Lender{Address: address}}}
}

// parseLender reads where another node is.
func parseLender(s string) (string, error) {
	if host, port, err := net.SplitHostPort(s); err != nil || host == "" || port == "" {
		return "", fmt.Errorf("must be HOST:PORT, not %q", s)
	}
	return s, nil
}

// parseFolder reads the name of a file or folder. It must be absolute, because workers have
// another working directory.
func parseFolder(s string) (string, error) {
	if !filepath.IsAbs(s) {
		return "", fmt.Errorf("must be an absolute path, not %q", s)
	}
	return s, nil
}

// checkWay refuses a lender whose description does not say how to reach it.
func checkWay(l control.Lender) error {
	switch {
	case l.Plain && l.TLS != "":
		return errors.New("plain is without TLS: leave one of tls and plain out")
	case !l.Plain && l.TLS == "":
		return errors.New("another node is reached with certificates: add the folder that muster cert made for this node's user (tls), or plain where the network is trusted")
	case l.Plain && l.Token == "":
		return errors.New("without TLS the two nodes show each other that they know a token: add the file that has it (token)")
	}
	return nil
}

// remoteWord reads the short form: HOST:PORT,device=1,tls=FOLDER.
func remoteWord(text string) ([]settings.Device, error) {
	address, rest, more := strings.Cut(text, ",")
	if _, err := parseLender(address); err != nil {
		return nil, fmt.Errorf("the address %w: write remote:HOST:PORT,tls=FOLDER", err)
	}
	one := remoteDevice(address)
	for more {
		var setting string
		setting, rest, more = strings.Cut(rest, ",")
		if err := remoteSetting(&one, setting); err != nil {
			return nil, err
		}
	}
	return []settings.Device{one}, checkWay(one.Lender)
}

func remoteSetting(one *settings.Device, setting string) (err error) {
	key, value, _ := strings.Cut(setting, "=")
	switch key {
	case "device":
		if one.Index, err = strconv.Atoi(value); err != nil || one.Index < 0 || one.Index > math.MaxInt32 {
			err = fmt.Errorf("device must be the number that the device has at the other node, from 0 on, not %q", value)
		}
	case "name":
		one.Name = value
	case "tls":
		one.Lender.TLS, err = parseFolder(value)
	case "token":
		one.Lender.Token, err = parseFolder(value)
	case "plain":
		one.Lender.Plain = true
		if value != "" && value != "yes" {
			err = fmt.Errorf("plain has no value: write it alone, or plain=yes, not %q", setting)
		}
	default:
		return fmt.Errorf("%q is no setting: it is one of device, name, tls, token, plain", setting)
	}
	if err != nil && (key == "tls" || key == "token") {
		err = fmt.Errorf("%s %w", key, err)
	}
	return err
}
