// Package simpage shows the results of simulations: tables for a terminal, and a page with pictures
// in a single file.
//
// It arranges what package sim has computed and leaves the drawing to package report. It reads no
// files and knows no command line.
package simpage
