// Package source finds the jobs that a user names in one word: a log, the record of a head or of the
// simulator, a log that comes with Muster, or a generator with its parameters. It also reads the words
// that say in which format a log is read or written.
//
// It knows where jobs come from and nothing of what is done with them. Formats of logs are package
// workload's. It knows no command line beyond the names of flags, which stand in errors, and says with
// a misuse.Error what a user must write otherwise.
package source
