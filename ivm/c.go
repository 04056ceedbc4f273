package ivm

import "embed"

// SourcesInC has what the library in C is made of, for those who compile parts of it themselves, as a
// campaign does that compares what it decides with this side.
//
//go:embed c/balance.c c/internal.h c/ivm.h
var SourcesInC embed.FS
