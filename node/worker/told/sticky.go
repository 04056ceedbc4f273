package told

import (
	"sync"

	"muster/device/curesult"
	"muster/node/clientcore"
)

// Sticky is the result of every call after a fault, until the program resets the device. Goroutines
// beside the loop may find a fault before the core knows of it, so it has a lock of its own. The
// program sees a copy of the result in shared memory; if it overwrites that copy it harms only
// itself.
type Sticky struct {
	found  func(why string)               // the daemon is to be told
	tell   func(why string)               // to tell the program's user
	status func(result clientcore.Result) // to tell the program

	mu     sync.Mutex
	world  uint64 // the number of resets, as the core counts them: a fault of an earlier world is over
	result clientcore.Result
	why    string
	before clientcore.Result // the result of the world before
	silent bool              // the client is being rebuilt: the program is told afterwards
	told   bool              // the user was told the reason during the rebuild
}

// Current is the number of the world.
func (t *Sticky) Current() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.world
}

// Of returns the result of a world, for calls that began to wait in it.
func (t *Sticky) Of(world uint64) clientcore.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	if world != t.world {
		return t.before
	}
	return t.result
}

// Set makes a result the answer to every call, unless the device was reset since. It says whether
// it was not. Only the first fault of a world counts.
func (t *Sticky) Set(world uint64, r clientcore.Result, why string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if world != t.world {
		return false
	}
	if t.result == curesult.Success { // the first fault counts
		t.result, t.why = r, why
		t.found(why) // first: a program that is told may end at once, and takes its worker along
		t.say()
	}
	return true
}

// say tells the user the reason and then the program the result, in this order: a program that sees
// the result looks for the reason. The caller must hold the lock.
func (t *Sticky) say() {
	if t.silent {
		return
	}
	if t.result != curesult.Success && !t.told && !clientcore.SaidByKernel(t.result) {
		t.tell(t.why)
	}
	t.told = false
	t.status(t.result)
}

// Explain tells the user why a call is being answered with an error during a rebuild, unless the
// previous worker has: the program may exit when it gets the answer. The status in shared memory is
// Set at the end of the rebuild (Speak). Known is the status that the program sees now.
func (t *Sticky) Explain(known clientcore.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.silent && !t.told && t.result != curesult.Success && t.result != known && !clientcore.SaidByKernel(t.result) {
		t.told = true
		t.tell(t.why)
	}
}

// Resume continues with the state of a previous worker, and tells nobody until Speak.
func (t *Sticky) Resume(world uint64, r clientcore.Result, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.world, t.result, t.why, t.silent = world, r, why, true
}

// Speak ends the silence of a rebuild, and tells the program the result unless it knows.
func (t *Sticky) Speak(known clientcore.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.silent = false; t.result != known {
		t.say()
	}
}

// Clear begins a new world, after a reset.
func (t *Sticky) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.world++
	t.before, t.result, t.why, t.told = t.result, curesult.Success, "", false
	t.say()
}

// Know sets a world and its result without telling the program, which knows them.
func (t *Sticky) Know(world uint64, result clientcore.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.world, t.result = world, result
}
