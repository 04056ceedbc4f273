// Package vmm is the GPU virtual memory of one client as a state machine: it
// knows the client's allocations, cuts the arena into chunks, and keeps the
// directory that says for each chunk which places hold a valid copy. It
// decides what must move where; its caller, the worker, moves it.
//
// # Places
//
// The host (the client's swap area) and every device, of its own node or of
// another, are places. For each place a chunk has two marks: the place holds
// memory for it (mapped on a device, pages in the swap area), and what that
// memory contains is valid. A chunk valid nowhere was never written and is
// never copied. One copy or several may be valid; a write anywhere makes that
// copy the only one.
//
// A chunk that the client has filled with one word throughout needs no copy: the directory knows
// the word, as if it were one more place with valid contents. Such a chunk leaves a device for
// nothing, comes to one by a fill, and is lost with none. A write anywhere ends that.
//
// With one device this is the page table of the paper's node runtime:
//
//	isAllocated   the device holds memory for the chunk
//	toCopy2Dev    valid on the host only
//	toCopy2Swap   valid on the device only
//
// Several devices add nothing but more marks, and one that comes later adds its own
// (AddDevice). Data goes from one device to another through the host, or straight where
// the caller has said that the two can (Direct).
//
// # Parts
//
// A Space is a book of allocations, which knows no chunks, and a directory of chunks, which knows no
// allocations; what needs both, such as what to evict for a launch, is its own.
//
// # Plans
//
// Methods that need something moved return a Plan, steps to perform in order.
// The state after the call already is the state after the plan: the caller must
// perform all of it before the memory is used, and before the next plan. A step
// that fails, such as a copy from a device that died, cannot be undone: the
// client ends, or, if that device's memory is lost, Lost returns what was lost
// with it. A method that returns an error has changed nothing.
//
// Kernels and copies that are still under way on a device are the caller's
// business: it waits for them before it copies out or unmaps.
//
// # What is evicted
//
// Where a launch needs room, chunks it does not need give way: those needed
// longest ago first; among chunks needed by the same launch those whose
// contents need no copy; then in the order of addresses. Neighbours move in
// one step.
//
// # What it costs
//
// A launch in the steady state, where the same ranges are prepared and used
// as the last time and nothing else happened, or everything is resident, costs
// some nanoseconds a range, however many chunks these have. Other calls cost in
// proportion to the chunks of their ranges, and evictions to the chunks mapped.
// An allocation and its end cost about the same beside a hundred thousand others
// as beside ten. A launch that may need everything (PrepareAll) costs what changed
// since the last one, not what is allocated.
//
// Memory that is newly mapped, or was never written, has undefined contents: the
// caller must make sure that one client cannot read the data of another.
//
// The package knows no device, no operating system and no clock, and has no
// locks: one goroutine uses a Space at a time.
package vmm
