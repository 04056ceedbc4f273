// Package kernelpage shows the results of simulations of kernels on devices: tables for a terminal,
// and a page with pictures in a single file.
//
// It arranges what package sim/kernels has computed and leaves the drawing to package report. It
// reads no files and knows no command line.
package kernelpage
