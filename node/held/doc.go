// Package held is what a worker holds of a client, as descriptors: what the client shares with its
// program, and what another worker needs to rebuild it. A worker that outlived its daemon brings them to
// the next one; from a worker that does not come they are copied. It knows clients by their numbers only.
package held
