// Package quorum has several heads agree on what is in their stores, by Raft (hashicorp/raft).
//
// Only one of them leads. What its loop writes is an entry of the log (head/store): when a majority of the
// heads has it on disk, it is applied to the store of each. So any of them can go on where the leader
// stopped, as a head does that starts again.
//
// A Term is the time for which a head leads. An entry names the term whose leader made it, and is applied only
// if it entered the log in that same term: a head that lost the lead cannot write what it decided from what it
// knew before, even if it leads again. Nor can it let anything out, since it asks the others first (Commit).
//
// A store is its own snapshot. A head that lacks entries which the others have dropped gets a copy of the
// leader's file, and skips the entries that this has already.
//
// The package knows neither the core nor what records say.
package quorum
