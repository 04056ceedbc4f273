package nodefile

import (
	"strings"
	"testing"

	"muster/node/settings"
	"muster/wire/control"
)

func TestRemoteDevices(t *testing.T) {
	want := func(name string, index int, l control.Lender) settings.Device {
		return settings.Device{DeviceConfig: control.DeviceConfig{Kind: settings.KindRemote, Name: name, Index: index, Lender: l}}
	}
	tls := control.Lender{Address: "gpu1:9421", TLS: "/etc/muster"}
	plain := control.Lender{Address: "[::1]:9421", Token: "/etc/token", Plain: true}
	for _, c := range []struct {
		short, long string
		want        settings.Device
	}{
		{"remote:gpu1:9421,tls=/etc/muster", "{address: gpu1:9421, tls: /etc/muster}", want("", 0, tls)},
		{"remote:gpu1:9421,device=3,tls=/etc/muster,name=far", "{address: gpu1:9421, device: 3, tls: /etc/muster, name: far}", want("far", 3, tls)},
		{"remote:[::1]:9421,plain,token=/etc/token", "{address: \"[::1]:9421\", plain: true, token: /etc/token}", want("", 0, plain)},
	} {
		short, err := Devices(c.short)
		if err != nil || len(short) != 1 || short[0] != c.want {
			t.Errorf("%s: %+v, %v", c.short, short, err)
		}
		var long settings.Config
		err = Read([]byte("devices: [{remote: "+c.long+"}]\n"), "f", &long)
		if err != nil || len(long.Devices) != 1 || long.Devices[0] != c.want {
			t.Errorf("%s: %+v, %v", c.long, long.Devices, err)
		}
	}
	for text, says := range map[string]string{
		"remote:gpu1":                                       `the address must be HOST:PORT, not "gpu1"`,
		"remote::9421,tls=/a":                               `the address must be HOST:PORT`,
		"remote:gpu1:9421":                                  "another node is reached with certificates",
		"remote:gpu1:9421,tls=here":                         `tls must be an absolute path, not "here"`,
		"remote:gpu1:9421,tls=/a,plain":                     "leave one of tls and plain out",
		"remote:gpu1:9421,plain":                            "they know a token",
		"remote:gpu1:9421,tls=/a,device=-1":                 "device must be the number",
		"remote:gpu1:9421,tls=/a,memory=1G":                 `"memory=1G" is no setting: it is one of device, name, tls, token, plain`,
		"remote:gpu1:9421,tls=/a,plain=no":                  "plain has no value",
		"remote:a:1,tls=/a,name=x;remote:b:1,tls=/a,name=x": `another device is named "x" already`,
	} {
		if _, err := Devices(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, says := range map[string]string{
		"{remote: {tls: /a}}":                                "f:1:20: this device of another node has no address: add address: HOST:PORT",
		"{remote: {address: gpu1:9421}}":                     "another node is reached with certificates",
		"{remote: {address: gpu1:9421, tls: /a}, count: 2}":  "only software GPUs have a count",
		"{remote: {address: gpu1:9421, tls: /a}, cuda: all}": "a device is one of soft, cuda and remote",
	} {
		if err := Read([]byte("devices: ["+text+"]\n"), "f", &settings.Config{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
