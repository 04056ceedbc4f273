// Package report draws: plain-text tables and histograms for terminals, and HTML pages in a single
// file (no network, no external script).
//
// Its input is plain numbers and strings. It knows nothing of jobs, policies or clusters, and
// imports only the standard library. All text is treated as hostile: none of it can become markup,
// a script or a terminal control sequence.
package report
