// Package report draws: plain-text tables and histograms for terminals, and
// HTML pages that stand alone in one file (no network, no outside script).
//
// It is told what to draw as plain numbers and strings. It knows nothing of
// jobs, policies or clusters, and imports the standard library only. Whatever
// it is handed is treated as hostile text: nothing in it can become markup, a
// script or a terminal control sequence.
package report
