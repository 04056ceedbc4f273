// Package checkpoint is how a client lies in a file: what its core knows of it
// (clientcore.Save), the contents of its device memory and, for programs that are
// saved as a whole, the memory that the program shares with its worker. It writes and
// reads bytes; it knows no core, no worker and no device.
//
// # The format
//
// Numbers are little-endian. A file is a head of 24 bytes, the word MusterCheckpoint,
// the version as u32 and a zero as u32, and then records. A record is
//
//	u32 kind; u32 check; u64 at; u64 size; size bytes
//
// where check is the CRC-32C of kind, at, size and the bytes. So damage is found in
// the record in which it is, and the record is named. The kinds, in the order in which
// they stand in a file:
//
//	1 about        once: JSON, a value of type About; at is 0
//	2 core         at most once: what clientcore.Save wrote; at is 0
//	3 allocations  once: pairs of u64, address and size, in the order of addresses; at is 0
//	4 memory       a piece of device memory at an address, within one allocation
//	5 ring         a piece of the ring's memory at an offset
//	6 data         a piece of the data arena at an offset
//	7 end          once, the last: at is the number of records before it, size is 0
//
// Pieces of a kind are in the order of their places and do not overlap; a piece has from 1
// to MaxPiece bytes. Memory that no piece covers is zero. The writer leaves out zeros in
// blocks of 64 KiB, so memory that was never written takes no room.
//
// A reader refuses everything else (ErrFile). It trusts no size before it knows that the
// file is that long, and it reads a file twice: first all of it, to see whether it is whole,
// and only then for its contents.
//
// The library in C writes and reads the same (shim/lib/entry/checkpoint.c), for programs that
// save themselves; its files have no core.
//
// # Folders
//
// A checkpoint that muster checkpoint takes is a folder with a manifest, checkpoint.json,
// which names the files of clients and, for a whole program, the folder with CRIU's images.
// The manifest is written last, and renamed into its place: at any moment the folder has
// either the old checkpoint or the new one, even after a crash.
package checkpoint
