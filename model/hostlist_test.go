package model

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestExpandNodes(t *testing.T) {
	for list, want := range map[string]string{
		"login":                   "login",
		"n[1-3]":                  "n1 n2 n3",
		"n[08-11]":                "n08 n09 n10 n11",
		"n[8-11]":                 "n8 n9 n10 n11",
		"n[1-2],gpu[1-3,7],login": "n1 n2 gpu1 gpu2 gpu3 gpu7 login",
		"r[1-2]n[1-2]":            "r1n1 r1n2 r2n1 r2n2",
		"r[1-2]-ib":               "r1-ib r2-ib",
		"[1-2]":                   "1 2",
		"n[2,1]":                  "n2 n1",
		"n[999999999999999998-999999999999999999]": "n999999999999999998 n999999999999999999",
	} {
		got, err := ExpandNodes(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("ExpandNodes(%q) = %v, %v; want %s", list, got, err, want)
		}
	}
	if got, err := ExpandNodes("n[000000-999999]"); err != nil || len(got) != MaxNodeNames || got[MaxNodeNames-1] != "n999999" {
		t.Errorf("a million names: got %d, %v", len(got), err)
	}
}

func TestExpandNodesRefuses(t *testing.T) {
	for list, want := range map[string]string{
		"":                          `node list "": a name is missing: remove the extra comma, or name a node`,
		"a,,b":                      `a name is missing`,
		"a,":                        `a name is missing`,
		"n[1-3":                     `a bracket is not closed: write n[1-3,7]`,
		"n1]":                       `a bracket closes that was not opened`,
		"n[1[2]]":                   `a bracket opens inside a bracket`,
		"a, b":                      `separate names by commas alone`,
		"n[]":                       `[] is no range of numbers`,
		"n[a-b]":                    `[a-b] is no range of numbers`,
		"n[-3]":                     `[-3] is no range of numbers`,
		"n[+1-3]":                   `[+1-3] is no range of numbers`,
		"n[3-1]":                    `[3-1] runs backwards: write [1-3]`,
		"n[001-9]":                  `[001-9] has fewer digits at its end`,
		"n[0-1000000]":              `it stands for more than 1000000 names`,
		"n[0-999999],x":             `it stands for more than 1000000 names`,
		"n[1-1001][1-1000]":         `it stands for more than 1000000 names`,
		"n[0-999999999999999999]":   `it stands for more than 1000000 names`,
		"n[1-1000000000000000000]":  `is no range of numbers`,
		strings.Repeat("x", 256):    `a name has more than 255 characters`,
		strings.Repeat("[1-9]", 99): `it stands for more than 1000000 names`,
	} {
		if got, err := ExpandNodes(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ExpandNodes(%q) = %d names, %v; want an error with %q", list, len(got), err, want)
		}
	}
}

func TestCompareNodes(t *testing.T) {
	inOrder := strings.Fields("a a1 gpu n n0 n01 n1 n2 n0010 n10 n11 n1-2 rack1-n9 rack1-n10 rack2-n1")
	for i, a := range inOrder {
		for j, b := range inOrder {
			if got := CompareNodes(a, b); got != cmp.Compare(i, j) {
				t.Errorf("CompareNodes(%s, %s) = %d", a, b, got)
			}
		}
	}
}

func TestCompressNodes(t *testing.T) {
	for names, want := range map[string]string{
		"":                    "",
		"login":               "login",
		"n1":                  "n1",
		"n1 n2 n3 n7":         "n[1-3,7]",
		"n08 n09 n10":         "n[08-10]",
		"n9 n10":              "n[9-10]",
		"n09 n10 n1":          "n[09-10,1]",
		"n3 n2 n1":            "n[3,2,1]",
		"n n1 n2 n":           "n,n[1-2],n",
		"n1 n1":               "n[1,1]",
		"a1 b1 b2 login":      "a1,b[1-2],login",
		"r1-ib r2-ib":         "r1-ib,r2-ib",
		"n999999999999999999": "n999999999999999999",
		"n999999999999999999 n1000000000000000000": "n999999999999999999,n1000000000000000000",
	} {
		if got := CompressNodes(strings.Fields(names)); got != want {
			t.Errorf("CompressNodes(%s) = %q, want %q", names, got, want)
		}
	}
}

func FuzzNodes(f *testing.F) {
	for _, s := range []string{"n[0001-1024],gpu[1-3,7],login", "r[1-2]n[01-10]", "n09,n10,n1", "999999999999999999,1000000000000000000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := ExpandNodes(list)
		if err != nil {
			return
		}
		short := CompressNodes(names)
		again, err := ExpandNodes(short)
		if err != nil || !slices.Equal(again, names) {
			t.Errorf("%q became %q, which is not the same: %v", list, short, err)
		}
	})
}

func TestParseRange(t *testing.T) {
	most := strconv.Itoa(math.MaxInt)
	for text, want := range map[string][]int{
		"7": {7}, "450..480:10": {450, 460, 470, 480}, "1..10:4": {1, 5, 9}, "1,2,5..7": {1, 2, 5, 6, 7}, "3..3": {3},
		" 1 , 2 ": {1, 2}, "0": {0}, most + ".." + most + ":2": {math.MaxInt}, "5,1": {5, 1},
	} {
		if got, err := ParseRange(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseRange(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                    `range "": "" is no whole number: write it as 7, 1,2,5, 1..7 or 450..480:10`,
		"a":                   `"a" is no whole number`,
		"1..":                 `"" is no whole number`,
		"1..2:0":              `a step of 0 leads nowhere`,
		"1..2:":               `"" is no whole number`,
		"-1..2":               `"-1" is no whole number`,
		"9..1":                `it runs backwards from 9 to 1`,
		"1..5,3":              `3 is in it twice`,
		"1-5":                 `"1-5" is no whole number`,
		"0..1000000":          `it has more than 1000000 values`,
		"0.." + most:          `it has more than 1000000 values`,
		"9999999999999999999": `is no whole number`,
	} {
		if got, err := ParseRange(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRange(%q) = %d values, %v; want an error with %q", text, len(got), err, want)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"450..480:10", "1,2,5..7", "0..999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		values, err := ParseRange(s)
		if err == nil && (len(values) == 0 || len(values) > MaxNodeNames) {
			t.Errorf("range %q gave %d values", s, len(values))
		}
	})
}
