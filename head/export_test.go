package head

// Slices makes slices of large requests smaller, until restore is called.
func Slices(load, looked int) (restore func()) {
	a, b, c := maxLoad, leastLoad, maxLooked
	maxLoad, leastLoad, maxLooked = load, 1, looked
	return func() { maxLoad, leastLoad, maxLooked = a, b, c }
}
