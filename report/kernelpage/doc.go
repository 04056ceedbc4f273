// Package kernelpage shows what simulations of kernels on devices found: tables
// for a terminal, and a page with pictures that stands alone in one file.
//
// It arranges what package sim/kernels has worked out and leaves the drawing to
// package report. It reads no files and knows no command line.
package kernelpage
