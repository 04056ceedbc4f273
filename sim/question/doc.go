// Package question turns what users ask of the simulators, in the words that flags take, into sweeps:
// which cluster and which part of it, which jobs or applications, which policies, seeds and steps to
// explain. What makes no sense is a misuse.Error that says what to write instead.
//
// It knows no command line beyond the names of its flags, which stand in errors. It shows no results;
// of policies that are scripts it tells what they printed and how they failed.
package question
