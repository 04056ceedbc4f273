package survival

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"muster/node/statefolder"
	"muster/node/tally"
	"muster/wire/control"
)

// What a client has fits into its slot, however large the numbers are.
func TestStandingsFit(t *testing.T) {
	full := fullest(ClientState{})
	if room := statefolder.Room; len(full) > room/2 {
		t.Errorf("%d bytes, of %d: give slots more room", len(full), room)
	}
	many := ClientState{Counters: tally.Counters{Links: make(tally.Links, tally.MaxLinks)}, Stats: control.Stats{Links: make(tally.Links, tally.MaxLinks)}}
	text, err := json.Marshal(many.WithoutLinks())
	if err != nil || len(text) > statefolder.Room {
		t.Errorf("a client with many links takes %d bytes, %v", len(text), err)
	}
}

// fullest is the longest that a document can be: every number is as long as it gets.
func fullest(document any) string {
	v := reflect.New(reflect.TypeOf(document)).Elem()
	var fill func(reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					fill(v.Field(i))
				}
			}
		case reflect.Int, reflect.Int64:
			v.SetInt(math.MinInt64)
		case reflect.Uint64:
			v.SetUint(math.MaxUint64)
		case reflect.Bool:
		case reflect.Slice: // of links, which are left out
		default:
			panic(v.Kind())
		}
	}
	fill(v)
	text, err := json.Marshal(v.Interface())
	if err != nil {
		panic(err)
	}
	return string(text)
}
