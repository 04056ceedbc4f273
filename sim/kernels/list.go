package kernels

// list is a set of numbers from 0 to n-1, in the order in which they were appended. It is a doubly
// linked list in two arrays, so append and remove take constant time.
type list struct {
	head, tail int32
	next, prev []int32
}

func newList(n int) list {
	return list{head: none, tail: none, next: make([]int32, n), prev: make([]int32, n)}
}

func (l *list) append(i int32) {
	l.next[i], l.prev[i] = none, l.tail
	if l.tail == none {
		l.head = i
	} else {
		l.next[l.tail] = i
	}
	l.tail = i
}

// remove takes out a number, which must be in the list.
func (l *list) remove(i int32) {
	if p := l.prev[i]; p == none {
		l.head = l.next[i]
	} else {
		l.next[p] = l.next[i]
	}
	if n := l.next[i]; n == none {
		l.tail = l.prev[i]
	} else {
		l.prev[n] = l.prev[i]
	}
}
