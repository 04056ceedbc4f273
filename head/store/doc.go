// Package store keeps a head's records on disk, in one file (bbolt).
//
// A commit is one transaction: when it returns, all its records are on disk, or none is. The file
// is locked for as long as it is open, so two heads cannot share it. For a restart, only what has
// not ended is read back; the history of ended jobs is read page by page, and never as a whole.
//
// Each record has a checksum (seal.go). Each bucket of the head is a bucket of the file. Two more are known only to this package: "store"
// has the version of the format, and "ended_at" lists ended jobs by the time of their end, with
// their users.
//
// The store knows that the records of ended jobs are record.Ended, and nothing about the others.
package store
