package model

import "strings"

// Nearest returns the known word that the user probably meant by a mistyped one, or "" if none is
// near. Of equally near ones it returns the first.
func Nearest(word string, known []string) string {
	word = strings.ToLower(word)
	letters := len([]rune(word))
	best, bestCost := "", (letters+2)/3+1
	for _, k := range known {
		cost := editCost(word, strings.ToLower(k), bestCost)
		if letters > 1 && strings.HasPrefix(strings.ToLower(k), word) {
			cost = min(cost, 1) // an abbreviation is as likely as one wrong letter
		}
		if cost < bestCost {
			best, bestCost = k, cost
		}
	}
	return best
}

// editCost is the number of letters to insert, delete, replace or swap with their neighbour to turn
// a into b. It gives up at most, and then returns most or more.
func editCost(a, b string, most int) int {
	x, y := []rune(a), []rune(b)
	if d := len(x) - len(y); d >= most || -d >= most {
		return most
	}
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := last[j]
			if x[i] != y[j] {
				cost++
			}
			cost = min(cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				cost = min(cost, before[j-1]+1)
			}
			row[j+1] = cost
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
