package model

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"fcfs", "easy", "g-queue", "r-queue", "conservative"}
	for word, want := range map[string]string{
		"esay": "easy", "EASY": "easy", "gqueue": "g-queue", "rqueue": "r-queue", "conservativ": "conservative",
		"x-queue": "g-queue", "banana": "", "": "", "fcf": "fcfs", "cons": "conservative", "e": "", "esyy": "easy",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
