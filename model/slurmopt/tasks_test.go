package slurmopt

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTasks compares sets of tasks with plain lists.
func TestTasks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var list []uint32
		for at, n := uint32(random.IntN(5)), random.IntN(12); n > 0; n-- {
			for step, k := uint32(1+random.IntN(3)), random.IntN(5); k >= 0; k-- {
				list = append(list, at)
				at += step
			}
			at += uint32(random.IntN(9))
		}
		if len(list) == 0 {
			continue
		}
		set := TasksOf(list)
		if set.Len() != len(list) {
			t.Fatalf("%v: %v has %d tasks", list, set, set.Len())
		}
		from := random.IntN(len(list) + 1)
		to := from + random.IntN(len(list)-from+1)
		if some, err := ParseTasks(string(set.AppendBetween(nil, from, to))); from < to && (err != nil || !slices.Equal(expand(some), list[from:to])) {
			t.Fatalf("%v: those from %d to %d are read as %v (%v)", set, from, to, some, err)
		}
		for i, task := range list {
			if place, ok := set.Place(int64(task)); !ok || place != i || set.At(i) != task {
				t.Fatalf("%v: task %d is at place %d, and %d is there", set, task, place, set.At(i))
			}
		}
		for task := int64(-1); task < int64(list[len(list)-1])+3; task++ {
			if _, ok := set.Place(task); ok != slices.Contains(list, uint32(task)) {
				t.Fatalf("%v: task %d is there: %v", set, task, ok)
			}
		}
		var other []uint32
		for at := uint32(0); at < list[len(list)-1]+9; at += uint32(1 + random.IntN(2)*random.IntN(4)) {
			other = append(other, at)
		}
		var common []uint32
		for _, some := range []Tasks{TasksOf(other), {{First: 2, Last: 62, Step: 3}}, {{First: 1, Last: 81, Step: 4}}, {{First: 0, Last: 70, Step: 2}}} {
			common = common[:0]
			set.Common(some, func(from, to int) { common = append(common, list[from:to]...) })
			if want := slices.DeleteFunc(slices.Clone(list), func(task uint32) bool { _, in := some.Place(int64(task)); return !in }); !slices.Equal(common, want) {
				t.Fatalf("%v and %v have %v", set, some, common)
			}
		}
		if again, err := ParseTasks(set.String()); err != nil || !slices.Equal(expand(again), list) {
			t.Fatalf("%v becomes %v (%v)", set, again, err)
		}
	}
	for text, want := range map[string]string{"0-99999": "0-99999", "0-99999:50000": "0,50000", "5-6:9": "5", "0-10:3": "0-9:3", "7,1-3,2": "1-3,7"} {
		if set, err := ParseTasks(text); err != nil || set.String() != want {
			t.Errorf("%s: %v, %v", text, set, err)
		}
	}
}

func expand(t Tasks) []uint32 {
	var list []uint32
	for i := range t.Len() {
		list = append(list, t.At(i))
	}
	return list
}
