package record

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"

	"muster/internal/indexset"
	"muster/internal/strictjson"
	"muster/wire/api"
)

var update = flag.Bool("update", false, "write testdata/records.jsonl again: then heads cannot read what lies on disks, and the store needs a new version")

// filled sets every field of a value, and of those within, to something.
func filled(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[indexset.Set]():
		v.Set(reflect.ValueOf(indexset.Of(3, 7)))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i))
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled(v.Index(0))
	case v.Kind() == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		filled(key)
		filled(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.String:
		v.SetString("<é>")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(7)
	case v.CanUint():
		v.SetUint(9)
	default:
		v.SetFloat(2.5)
	}
}

// TestBytes holds what is written, with every field and with none, to the letter. It is read again.
func TestBytes(t *testing.T) {
	var got bytes.Buffer
	for _, r := range []any{&Job{}, &Node{}, &Meta{}, &Bulk{}, &Key{}, &Ended{}} {
		for _, full := range []bool{false, true} {
			if full {
				filled(reflect.ValueOf(r).Elem())
			}
			line, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			got.Write(append(line, '\n'))
			again := reflect.New(reflect.TypeOf(r).Elem()).Interface()
			if err := strictjson.Decode(line, again); err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("%s is read as %+v, %v", line, again, err)
			}
		}
	}
	const file = "testdata/records.jsonl"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the records are others than in %s, %v:\n%s", file, err, &got)
	}
}

// TestEnded: the record of an ended job has all that users are shown of it.
func TestEnded(t *testing.T) {
	for _, full := range []bool{false, true} {
		var d api.Job
		if full {
			filled(reflect.ValueOf(&d).Elem())
		}
		line, err := json.Marshal(EndedAs(&d))
		if err != nil {
			t.Fatal(err)
		}
		e, err := ReadEnded(line)
		if err != nil || !reflect.DeepEqual(e.Document(), &d) {
			t.Errorf("%s is read as %+v, %v", line, e.Document(), err)
		}
	}
	if _, err := ReadEnded([]byte("[]")); err == nil {
		t.Error("what is no record was read")
	}
}
