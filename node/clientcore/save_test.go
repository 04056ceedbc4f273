package clientcore

import (
	"reflect"
	"testing"

	"muster/vmm"
)

// Every piece of a client's state is saved and loaded by a part.
func TestPartsSaveTheWholeState(t *testing.T) {
	c, err := New(Config{Arena: vmm.Range{Addr: scriptBase, Size: 1 << 30}, Chunk: 2 * scriptMiB, Devices: []Device{{Place: vmm.Device(0), Memory: 1 << 30}}})
	if err != nil {
		t.Fatal(err)
	}
	s := c.savers.state()
	something(reflect.ValueOf(&s).Elem())
	c.savers.load(&s)
	if got := c.savers.state(); !reflect.DeepEqual(got, s) {
		t.Errorf("%+v\nwant %+v", got, s)
	}
}

// something makes a value other than zero where it is exported.
func something(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				something(v.Field(i))
			}
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("something")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	}
}
