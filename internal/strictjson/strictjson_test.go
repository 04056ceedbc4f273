package strictjson

import "testing"

func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1}`:       "",
		" \n{\"a\":1}":  "",
		`{"a":1,"b":2}`: `json: unknown field "b"`,
		`{"a":1} {}`:    "something follows the object",
		`{"a":1}]`:      "something follows the object",
		`[1]`:           "not a JSON object",
		`null`:          "not a JSON object",
		"":              "not a JSON object",
		`{"a":`:         "unexpected EOF",
	} {
		var v struct {
			A int `json:"a"`
		}
		got := ""
		if err := Decode([]byte(text), &v); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, not %q", text, got, want)
		}
	}
}
