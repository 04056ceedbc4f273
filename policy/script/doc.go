// Package script runs policies that administrators write in Starlark, a small
// language that looks like Python. A script is a policy.Policy like any other: it
// reads the same view, proposes into the same plan, and is held to the same checks.
//
// # What a script cannot do
//
// It reads no clock, no file, no network, and draws no random numbers but seeded
// ones, so equal events give equal decisions. Each call of it has a number of steps
// and an amount of memory; its globals are frozen once the file has run, and what it
// keeps between calls, the dictionary state, is bounded. A call that goes beyond, that
// raises, or that proposes what makes no sense is over: its proposals are undone, a
// policy of the catalogue, the fallback, decides in that very step, and Trouble names
// the line and the column.
//
// # How the bounds hold
//
// The interpreter counts the steps it executes, but one step may do any amount of
// work: a list times a million is one step. So a file is rewritten before it is
// compiled (rewrite.go): every operation whose cost depends on its operands becomes
// the call of a guard (guard.go, methods.go, universe.go), which first charges what the
// operation will cost to the meter, in steps and in bytes. What is left costs a
// small constant a step. What is charged is not given back within a call, so the bound
// is also one on garbage.
//
// # Two ways to write one
//
// A file that defines decide(view, plan) is called at every step (decide.go). How
// another way joins is in way.go: it brings names that scripts may call, and says
// what a step does.
package script
