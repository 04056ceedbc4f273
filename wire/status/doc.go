// Package status is what a node reports about itself to people and to other parts of Muster: the
// documents behind muster ps, muster devices and muster top, and the metrics. Times are in seconds,
// sizes in bytes.
//
// It has the types and their encoding, and nothing that finds values out: the node fills them in,
// and the commands, the head and the page show them. It knows neither the node nor the protocol
// between programs and workers.
package status
