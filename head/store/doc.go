// Package store keeps a head's records on disk, in one file (bbolt).
//
// A commit is one transaction: when it returns, all its records are on disk, or
// none is. The file is locked for as long as it is open, so two heads cannot share
// it. What is read back for a restart is what has not ended; the history of ended
// jobs is read page by page, and never as a whole.
//
// A bucket of the head is a bucket of the file. Beside them there are two that only
// this package knows: "store" has the version of the format, and "ended_at" lists ended
// jobs by the time they ended, with their users.
//
// The store knows of its records that ended jobs are api.Job, and nothing else.
package store
