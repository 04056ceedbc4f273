package strictjson

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

type inner struct {
	Deep int `json:"deep"`
	A    int `json:"a"` // the outer one wins
}

type lower struct{ N int }

func (l *lower) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &map[string]any{}) }

type document struct {
	A     int              `json:"a"`
	Long  string           `json:"long_name,omitempty"`
	Plain bool             // without a tag
	List  []inner          `json:"list"`
	Table map[string]inner `json:"table"`
	To    *inner           `json:"to"`
	Any   any              `json:"any"`
	Raw   json.RawMessage  `json:"raw"`
	Own   lower            `json:"own"`
	Left  int              `json:"-"`
	Dash  int              `json:"-,"`
	inner
}

func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1}`:              "",
		" \n{\"a\":1}\n":       "",
		`{"a":1,"b":2}`:        `unknown field "b"`,
		`{"a":1} {}`:           "something follows the object",
		`{"a":1}]`:             "something follows the object",
		`[1]`:                  "not a JSON object",
		`null`:                 "not a JSON object",
		"":                     "not a JSON object",
		`{"a":`:                "unexpected EOF",
		`{}`:                   "",
		`{"a":1,"a":1}`:        `the name "a" is given twice`,
		`{"a":1,"\u0061":1}`:   `the name "a" is given twice`,
		`{"A":1}`:              `unknown field "A": write "a"`,
		`{"Long_Name":"x"}`:    `unknown field "Long_Name": write "long_name"`,
		`{"long_name":"\"}{"}`: "",
		`{"plain":true}`:       `unknown field "plain": write "Plain"`,
		`{"Plain":true}`:       "",
		`{ "deep" : 1 , "list" : [ { "deep" : 2 } , { } ] , "to" : null }`: "",
		`{"Deep":1}`:                          `unknown field "Deep": write "deep"`,
		`{"list":[{"deep":1},{"DEEP":2}]}`:    `unknown field "DEEP": write "deep"`,
		`{"list":[{"deep":1,"deep":2}]}`:      `the name "deep" is given twice`,
		`{"table":{"x":{"deep":1},"X":{}}}`:   "",
		`{"table":{"x":{"Deep":1}}}`:          `unknown field "Deep": write "deep"`,
		`{"table":{"x":{},"x":{}}}`:           `the name "x" is given twice`,
		`{"to":{"Deep":1}}`:                   `unknown field "Deep": write "deep"`,
		`{"any":{"Free":[1,{"x":1}],"f":{}}}`: "",
		`{"any":[{"x":1,"x":2}]}`:             `the name "x" is given twice`,
		`{"raw":{"A":1,"a":1e-3}}`:            "",
		`{"raw":{"a":1,"a":2}}`:               `the name "a" is given twice`,
		`{"own":{"whatever":1}}`:              "",
		`{"own":{"w":1,"w":[]}}`:              `the name "w" is given twice`,
		`{"-":1}`:                             "",
		`{"Left":1}`:                          `unknown field "Left"`,
		"{\"\u212a\":1}":                      "unknown field \"\u212a\"",
	} {
		got := ""
		if err := Decode([]byte(text), &document{}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, not %q", text, got, want)
		}
	}
	many := "{"
	for i := range 40 {
		many += `"` + strings.Repeat("x", i) + `":1,`
	}
	if err := Decode([]byte(many+`"y":1}`), &map[string]int{}); err != nil {
		t.Error(err)
	}
	if err := Decode([]byte(many+`"xxx":1}`), &map[string]int{}); err == nil {
		t.Error("one of many names is given twice, and taken")
	}
}

// What is accepted is what encoding/json accepts, and written again it has as many names as were
// read: none was dropped, and none taken for another.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"A":1}`, `{"a":1,"a":2}`, `{"list":[{"deep":1}],"any":{"x":[{}]}}`, `{"\u0061":1e3,"long_name":"\\\""}`, `{"raw":[1,"]"],"table":{"":{}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var strict, loose document
		err := Decode(b, &strict)
		if err != nil {
			return
		}
		if err := json.Unmarshal(b, &loose); err != nil || !reflect.DeepEqual(strict, loose) {
			t.Fatalf("%s: %v: %+v and %+v", b, err, strict, loose)
		}
		var free map[string]json.RawMessage
		if err := json.Unmarshal(b, &free); err != nil {
			t.Fatal(err)
		}
		for name := range free {
			if _, ok := fieldsOf(reflect.TypeFor[document]())[name]; !ok {
				t.Fatalf("%s: %q is no field", b, name)
			}
		}
	})
}

// The check costs less than the decoding.
func BenchmarkDecode(b *testing.B) {
	text := []byte(`{"list":[` + strings.TrimSuffix(strings.Repeat(`{"deep":1234567,"a":2},`, 10_000), ",") + `],"long_name":"` + strings.Repeat("x", 1<<20) + `"}`)
	b.Run("strict", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if err := Decode(text, &document{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("names", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			w := walker{text}
			if err := w.value(reflect.TypeFor[document]()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("loose", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if err := json.NewDecoder(bytes.NewReader(text)).Decode(&document{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
