package settings

import (
	"reflect"
	"slices"
	"testing"

	"muster/wire/control"
)

func TestAddedDevices(t *testing.T) {
	a, b := software("a"), software("b")
	a1 := a
	a1.Index = 1
	gpu := func(index int) Device { return Device{DeviceConfig: control.DeviceConfig{Kind: "cuda", Index: index}} }
	for _, c := range []struct{ was, is, want []Device }{
		{nil, nil, nil},
		{[]Device{a}, []Device{a1}, nil},
		{[]Device{a}, []Device{b, a1}, []Device{b}},
		{[]Device{a}, []Device{a, a1}, []Device{a1}},
		{[]Device{a, a1}, []Device{a}, nil},
		{[]Device{gpu(0)}, []Device{gpu(1), gpu(0)}, []Device{gpu(1)}},
		{[]Device{gpu(0)}, []Device{{DeviceConfig: gpu(0).DeviceConfig, Reserve: 1}}, []Device{{DeviceConfig: gpu(0).DeviceConfig, Reserve: 1}}},
	} {
		if got := AddedDevices(c.was, c.is); !slices.Equal(got, c.want) {
			t.Errorf("%v -> %v: %v", c.was, c.is, got)
		}
	}
}

// Every setting is among those that a reload looks at.
func TestReloadKnowsEverySetting(t *testing.T) {
	typ := reflect.TypeOf(Config{})
	for i := range typ.NumField() {
		a, b := Default(), Default()
		alter(reflect.ValueOf(&b).Elem().Field(i))
		if len(Changed(&a, &b)) == 0 {
			t.Errorf("a reload does not see that %s has changed: name it in changedSettings, and in fixed if it takes a restart", typ.Field(i).Name)
		}
	}
}

// alter makes a value another one.
func alter(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			alter(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	default:
		panic(v.Kind())
	}
}

// software is a software GPU of some name.
func software(name string) Device {
	return Device{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: name, Speed: 1, Memory: 64 << 20, Workers: 1}}
}
