// Package simpage shows what simulations found: tables for a terminal, and a
// page with pictures that stands alone in one file.
//
// It arranges what package sim has worked out and leaves the drawing to package
// report. It reads no files and knows no command line.
package simpage
